"""Shows plans in the terminal: a summary in about thirty lines, and several layouts as one table.

rich chooses the colours. There are none in files and pipes, or if NO_COLOR is set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from meshtf.call_sites import place_text
from meshtf.errors import counted
from meshtf.lowering.report.report import Report
from meshtf.lowering.report.text_table import flops_text, seconds_text, size_text, wrapped
from meshtf.plan_view.operation_groups import OperationGroup, operation_groups
from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.plan_view.remarks import remarks

_MOST_LINES, _BAR, _FILE_WIDTH = 5, 40, 120
_NARROWEST, _GAP = 12, 3
_OTHER_ORDER = "with collectives later or earlier"
"""The label of the additional memory when cores run ahead or behind. The peak covers all orders; its parts cover only
the order of the plan."""
_COLOURS = {
    "weights": "blue",
    "slots": "cyan",
    "feeds": "white",
    "gradients": "yellow",
    "activations": "green",
    "temporary": "magenta",
    _OTHER_ORDER: "white",
    "products": "blue",
    "elementwise": "green",
    "update": "magenta",
    "communication": "yellow",
    "bubble": "red",
    "start": "white",
}
_MEMORY_KINDS = ("weights", "slots", "feeds", "gradients", "activations", "temporary")


def print_summary(planned: PlannedLayout) -> None:
    """Prints about thirty lines. The last line tells how to get more details."""
    console = _console()
    for line in _summary(planned, console.width):
        console.print(line, overflow="ellipsis", no_wrap=True, crop=True)


def print_comparison(layouts: Sequence[PlannedLayout]) -> None:
    """Prints a column for each layout, and a row for each setting and number, even if all layouts agree."""
    possible = [layout for layout in layouts if layout.report is not None]
    rows, console = list(_compared_rows(possible)), _console()
    titles = max((len(title) for title, _ in rows), default=0)
    each = max(_NARROWEST, (console.width - titles) // len(layouts) - _GAP)

    def fitting(text: str) -> str:
        return "\n".join(wrapped(line, each) for line in text.split("\n"))

    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    table.add_column("")
    for layout in layouts:
        table.add_column(fitting(layout.label), overflow="fold", justify="right")
    for title, cell in rows:
        table.add_row(title, *(Text("not possible", "red") if x.report is None else fitting(cell(x)) for x in layouts))
    console.print(table)


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=False)
    return (
        console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=_FILE_WIDTH, markup=False)
    )


def _flops(n: int) -> str:
    return flops_text(n).strip()


def _row(name: str, *parts: str | Text) -> Text:
    return Text.assemble((f"{name:<14}", "dim"), *parts)


def _summary(planned: PlannedLayout, width: int) -> Iterator[Text]:
    report = planned.report
    if report is None:
        return
    yield Text(planned.headline.partition(", mesh [")[0], "bold")
    settings = planned.settings
    cores = "1 core" if report.cores == 1 else f"{report.cores} cores"
    yield _row("mesh", settings.mesh_shape, f"  ({cores}), a batch of {settings.batch_size}")
    yield _row("layout", settings.layout or "(nothing is split)")
    if settings.parameter_layout:
        yield _row("parameters", settings.parameter_layout)
    if settings.activation_layout:
        yield _row("activations", settings.activation_layout)
    yield Text()
    yield from _predicted(planned, width)
    yield from _memory(planned, report, width)
    yield _row("work", f"{_flops(report.flops_per_core)} a core", _repeated(report))
    yield _row("sent", _sent(report))
    yield from _pipelines(report)
    for remark in remarks(report):
        yield _row("", Text(remark, "yellow"))
    groups = operation_groups(report, planned.prediction)
    yield from _costliest(groups, planned)
    yield from _largest_traffic(report)
    yield Text()
    yield Text(
        "--full: the whole report   --html=plan.html: a page to look at   --compare=LAYOUT: another beside it", "dim"
    )


def _predicted(planned: PlannedLayout, width: int) -> Iterator[Text]:
    prediction = planned.prediction
    if prediction is None:
        return
    parts = {name: getattr(prediction.parts, name) for name in prediction.parts.__dataclass_fields__}
    speed = f", {prediction.tokens_per_second:,.0f} tokens/s" if prediction.tokens_per_second else ""
    peak = f", {prediction.share_of_peak:.1%} of its peak"
    yield _row(
        "step", Text(seconds_text(prediction.seconds), "bold"), f" predicted on {prediction.machine}{speed}{peak}"
    )
    yield _row("", _bar(parts, prediction.seconds))
    yield from _legend({name: s for name, s in parts.items() if s > 0}, seconds_text, width)
    if (hidden := prediction.hidden_communication) > 0:
        yield _row("", f"besides, {seconds_text(hidden)} of communication behind other work, for which no core waits")


def _memory(planned: PlannedLayout, report: Report, width: int) -> Iterator[Text]:
    memory, prediction = report.memory, planned.prediction
    where = (
        f", in {memory.peak_label}, {place_text(memory.peak_filename, memory.peak_line)}"
        if memory.peak_operation
        else ""
    )
    room = ""
    style = "bold"
    if prediction is not None:
        fits = "" if prediction.fits else ", which does not fit"
        room, style = f" of {size_text(prediction.memory_bytes)}{fits}", "bold" if prediction.fits else "bold red"
    yield _row("peak memory", Text(size_text(memory.peak), style), f" a core{room}{where}")
    moment = max(report.memory_timeline, key=lambda m: m.total, default=None)
    if moment is not None and moment.total:
        kinds = {kind: getattr(moment, kind) for kind in _MEMORY_KINDS}
        kinds[_OTHER_ORDER] = memory.peak - moment.total
        yield _row("", _bar(kinds, memory.peak))
        yield from _legend({kind: n for kind, n in kinds.items() if n}, size_text, width)


def _bar(parts: Mapping[str, float], whole: float) -> Text:
    """Returns a bar of the width `_BAR`. Its parts have the order of the legend below, which matters without colour."""
    text, done, drawn = Text(), 0.0, 0
    for number, (name, value) in enumerate(parts.items()):
        done += value
        until = round(_BAR * done / whole) if whole else 0
        text.append("█▓▒░▚▞"[number % 6] * (until - drawn), _COLOURS[name])
        drawn = until
    return text


def _legend(parts: Mapping[str, float], as_text: Callable[[float], str], width: int) -> Iterator[Text]:
    """Yields the parts as text, in as many lines as needed."""
    line = _row("")
    begins = len(line)
    for name, value in parts.items():
        text = Text.assemble((name, _COLOURS[name]), f" {as_text(value)}")
        if len(line) > begins and len(line) + len(text) + 2 > width:
            yield line
            line = _row("")
        line = Text.assemble(line, ", " if len(line) > begins else "", text)
    yield line


def _repeated(report: Report) -> str:
    repeated = report.repeated_flops_per_core
    return f", {repeated / max(1, report.flops_per_core):.0%} of it repeated on other cores" if repeated else ""


def _sent(report: Report) -> str:
    count = sum(c.times for c in report.collectives)
    if not count:
        return "nothing: no core needs another"
    text = f"{size_text(report.bytes_sent_per_core)} a core, in {count} collective{'s' if count > 1 else ''}"
    between = f"; {size_text(report.bytes_between_processes)} from each process to others"
    return text + (between if report.processes > 1 else "")


def _pipelines(report: Report) -> Iterator[Text]:
    for p in report.pipelines[:1]:
        microbatches = counted(p.microbatches, "micro-batch", "micro-batches")
        yield _row("pipeline", f"{counted(p.stages, 'stage')}, {microbatches}, a bubble of {p.bubble:.1%}")


def _costliest(groups: Sequence[OperationGroup], planned: PlannedLayout) -> Iterator[Text]:
    """Yields the operations that take most time, or have most work if no machine is known."""
    prediction = planned.prediction
    predicted = prediction is not None
    costs = [(group.seconds or 0.0) if predicted else float(group.flops) for group in groups]
    whole = sum(costs) if prediction is None else prediction.seconds
    if not whole:
        return
    yield Text()
    yield Text("where the time goes" if predicted else "where the work is", "bold")
    for cost, group in sorted(zip(costs, groups, strict=True), key=lambda pair: -pair[0])[:_MOST_LINES]:
        text = seconds_text(cost) if predicted else _flops(int(cost))
        kind = Text(group.category, _COLOURS.get(group.category, ""))
        yield Text.assemble(
            (f"{text:>14}", "cyan"), f"  {cost / whole:>4.0%}  {group.name}, ", kind, f", {group.place}"
        )


def _largest_traffic(report: Report) -> Iterator[Text]:
    if not report.traffic:
        return
    yield Text()
    yield Text("what is sent", "bold")
    for t in report.traffic[: _MOST_LINES - 1]:
        share = t.bytes_sent / max(1, report.bytes_sent_per_core)
        sent = size_text(t.bytes_sent)
        yield Text.assemble((f"{sent:>14}", "cyan"), f"  {share:>4.0%}  {t.count} x {t.kind} over {'+'.join(t.axes)}")


_Cell = Callable[[PlannedLayout], str]


def _compared_rows(possible: Sequence[PlannedLayout]) -> Iterator[tuple[str, _Cell]]:
    yield "mesh", lambda p: p.settings.mesh_shape
    yield "layout", lambda p: _in_lines(p.settings.layout) or "(nothing is split)"
    if any(p.settings.parameter_layout for p in possible):
        yield "parameter layout", lambda p: _in_lines(p.settings.parameter_layout)
    if any(p.settings.activation_layout for p in possible):
        yield "activation layout", lambda p: _in_lines(p.settings.activation_layout)
    if len({p.settings.batch_size for p in possible}) > 1:
        yield "batch size", lambda p: str(p.settings.batch_size)
    if any(p.prediction for p in possible):
        yield "predicted step", lambda p: seconds_text(p.prediction.seconds) if p.prediction else ""
        yield "of the peak", lambda p: f"{p.prediction.share_of_peak:.1%}" if p.prediction else ""
    if any(p.prediction and p.prediction.tokens_per_second for p in possible):
        yield "tokens/s", lambda p: f"{p.prediction.tokens_per_second or 0:,.0f}" if p.prediction else ""
    yield "variables", _of_report(lambda r: size_text(r.memory.variables))
    yield "peak memory", _of_report(lambda r: size_text(r.memory.peak))
    if any(p.prediction and not p.prediction.fits for p in possible):
        yield "fits", lambda p: "" if p.prediction is None else "yes" if p.prediction.fits else "no"
    yield "work of a core", _of_report(lambda r: _flops(r.flops_per_core))
    yield "of it repeated", _of_report(lambda r: f"{r.repeated_flops_per_core / max(1, r.flops_per_core):.0%}")
    yield "sent by a core", _of_report(lambda r: size_text(r.bytes_sent_per_core))
    for axes in dict.fromkeys(t.axes for p in possible if p.report for t in p.report.traffic):
        yield f"  over {'+'.join(axes)}", _of_report(lambda r, axes=axes: _sent_over(r, axes))
    yield "collectives", _of_report(lambda r: str(sum(c.times for c in r.collectives)))


def _in_lines(rules: str) -> str:
    return rules.replace(";", ";\n")


def _of_report(text: Callable[[Report], str]) -> _Cell:
    return lambda planned: "" if planned.report is None else text(planned.report)


def _sent_over(report: Report, axes: Sequence[str]) -> str:
    sent = sum(t.bytes_sent for t in report.traffic if t.axes == axes)
    return size_text(sent) if sent else "-"
