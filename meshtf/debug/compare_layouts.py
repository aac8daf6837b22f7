"""`compare_layouts`: the plans of one program under two layouts, side by side."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from meshtf.backends.plan_mesh_impl import PlanMeshImpl
from meshtf.call_sites import says_where
from meshtf.costs import Machine, Prediction, load_machine, predict
from meshtf.debug.lowered_program import LoweredProgram
from meshtf.errors import counted
from meshtf.function.program import Function
from meshtf.layout import LayoutLike
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.report.report import Report
from meshtf.lowering.report.text_table import Column, bytes_text, flops_text, seconds_text, size_text, table
from meshtf.markup import block, element, folded, grid
from meshtf.mesh_impl.mesh_impl import MeshImpl

_MOST_TENSORS = 20
_WIDTH = 160

MeshOrLayout: TypeAlias = "MeshImpl | LayoutLike"


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedTensor:
    """A tensor or a variable that the two layouts divide differently.

    Attributes:
      name: its name. For a variable, the layout is that between steps.
      label: the name of the variable, or of the operation as reports write it, such as `update of dense/kernel`.
      layouts: its named shape with the mesh axes that split it, in both.
      bytes_per_core: bytes of a core's part, in both.
    """

    name: str
    label: str
    layouts: tuple[str, str]
    bytes_per_core: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class LayoutComparison:
    """The result of `mtf.debug.compare_layouts`. Print it; a notebook shows it as HTML.

    Attributes:
      reports: the report of the program under each layout.
      predictions: the predicted time under each; None without a machine.
      tensors: the tensors that differ, the largest first.
    """

    reports: tuple[Report, Report]
    predictions: tuple[Prediction, Prediction] | None
    tensors: tuple[ComparedTensor, ...]

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """The facts about both plans, in words: the name of a fact, and its value under each layout."""
        return list(self._rows())

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        yield self._row("mesh", lambda r: " ".join(f"{name}:{size}" for name, size in r.mesh))
        yield self._row("layout", lambda r: r.layout or "(nothing is split)")
        for name in ("parameter_layout", "activation_layout"):
            if any(getattr(r, name) not in ("", r.layout) for r in self.reports):
                yield self._row(name.replace("_", " "), lambda r, name=name: getattr(r, name) or "(nothing is split)")
        yield self._row("peak memory per core", lambda r: size_text(r.memory.peak))
        yield self._row("variables per core", lambda r: size_text(r.memory.variables))
        yield self._row("work per core", lambda r: flops_text(r.flops_per_core).strip())
        yield self._row("of it repeated", lambda r: flops_text(r.repeated_flops_per_core).strip())
        yield self._row("sent per core", lambda r: size_text(r.bytes_sent_per_core))
        for kind, axes in dict.fromkeys((t.kind, t.axes) for r in self.reports for t in r.traffic):
            name = f"  {kind} over {'+'.join(axes)}"
            yield self._row(name, lambda r, kind=kind, axes=axes: _traffic(r, kind, axes))
        if any(r.processes > 1 for r in self.reports):
            yield self._row("between processes", lambda r: size_text(r.bytes_between_processes))
        if self.predictions is not None:
            first, second = (seconds_text(p.seconds) for p in self.predictions)
            yield f"predicted step on {self.predictions[0].machine}", first, second

    def _row(self, name: str, text: Callable[[Report], str]) -> tuple[str, str, str]:
        first, second = map(text, self.reports)
        return name, first, second

    def _tensor_rows(self, most: int) -> list[tuple[str, ...] | str]:
        alike = collections.Counter((t.label, t.layouts, t.bytes_per_core) for t in self.tensors)
        rows: list[tuple[str, ...] | str] = [
            (f"{times}", label, *(f"[{layout}]" for layout in layouts), *map(bytes_text, bytes_per_core))
            for (label, layouts, bytes_per_core), times in itertools.islice(alike.items(), most)
        ]
        return rows + ([f"and {len(alike) - most} more"] if len(alike) > most else [])

    @property
    def _title(self) -> str:
        return f'program "{self.reports[0].program}" under two layouts, a and b'

    @property
    def _tensors_title(self) -> str:
        if not self.tensors:
            return "no tensor is laid out differently"
        return f"{counted(len(self.tensors), 'tensor')} laid out differently"

    def __str__(self) -> str:
        columns = [Column(""), Column("a", keeps="start"), Column("b", keeps="start")]
        lines = [self._title, *table(columns, self.rows, _WIDTH), "", self._tensors_title]
        if self.tensors:
            lines += table(_TENSORS, self._tensor_rows(_MOST_TENSORS), _WIDTH)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        titles, numbers = [c.title for c in _TENSORS], [c.is_number for c in _TENSORS]
        rows = [row if isinstance(row, str) else [cell.strip() for cell in row] for row in self._tensor_rows(500)]
        return block(
            element("p", element("b", self._title)),
            grid(("", "a", "b"), self.rows),
            folded(self._tensors_title, grid(titles, rows, numbers), is_open=len(self.tensors) <= _MOST_TENSORS),
        )


_TENSORS = (
    Column("times", True),
    Column("tensor", keeps="end"),
    Column("a", keeps="start"),
    Column("b", keeps="start"),
    Column("a per core", True),
    Column("b per core", True),
)


@says_where
def compare_layouts(
    program: Function | Lowering, a: MeshOrLayout, b: MeshOrLayout, *, machine: str | Machine | None = None
) -> LayoutComparison:
    """Plans a program under two layouts, and shows the plans side by side. Nothing runs.

    Args:
      program: the program. Its own layout is not used, but other options of its mesh, such as `parameter_layout`, are.
      a: layout rules for the mesh of the program, or a whole mesh implementation.
      b: the other layout, likewise.
      machine: a machine, or the name of one, such as "v5e". With it, the time of a step is predicted.

    Raises:
      LayoutError: a layout does not fit the program.
      UsageError: `program` is not a program, or the machine is unknown.

    Examples:
      >>> total = lambda x: mtf.reduce_sum(2.0 * x, reduced_dim="hidden")
      >>> step = mtf.function(total, mtf.PlanMeshImpl("rows:2", ""), {"x": mtf.TensorSpec("batch:4 hidden:8")})
      >>> compared = mtf.debug.compare_layouts(step, "batch:rows", "hidden:rows")
      >>> [report.bytes_sent_per_core for report in compared.reports]
      [0, 16]
    """
    lowered = LoweredProgram.of(program)
    reports = _report(lowered, a), _report(lowered, b)
    chosen = load_machine(machine) if isinstance(machine, str) else machine
    predictions = None if chosen is None else (predict(reports[0], chosen), predict(reports[1], chosen))
    return LayoutComparison(reports, predictions, tuple(_differing(*reports, _labels(lowered.lowering))))


def _report(lowered: LoweredProgram, layout: MeshOrLayout) -> Report:
    own = lowered.lowering
    mesh_impl = layout if hasattr(layout, "layout_rules") else _on_paper(own, cast("LayoutLike", layout))
    return own.on(cast("MeshImpl", mesh_impl)).report(lowered.fetches)


def _on_paper(own: Lowering, layout: LayoutLike) -> PlanMeshImpl:
    return PlanMeshImpl(own.mesh_shape, layout, options=own.mesh_impl.options)


def _labels(lowering: Lowering) -> dict[str, str]:
    return {x.name: o.label for o in lowering.graph.every_operation() for x in o.outputs}


def _differing(first: Report, second: Report, labels: Mapping[str, str]) -> list[ComparedTensor]:
    kept = {v.name for v in first.variables}
    records = [
        {t.name: t for t in (*(t for t in report.tensors if t.name not in kept), *report.variables)}
        for report in (first, second)
    ]
    found = [
        ComparedTensor(name, labels[name], (own.layout, other.layout), (own.bytes_per_core, other.bytes_per_core))
        for name, own in records[0].items()
        if (other := records[1].get(name)) is not None and own.layout != other.layout
    ]
    return sorted(found, key=lambda t: -max(t.bytes_per_core))


def _traffic(report: Report, kind: str, axes: Sequence[str]) -> str:
    sent = [t for t in report.traffic if (t.kind, t.axes) == (kind, axes)]
    size = size_text(sum(t.bytes_sent for t in sent))
    return f"{size}, {counted(sum(t.count for t in sent), 'time')}" if sent else "-"
