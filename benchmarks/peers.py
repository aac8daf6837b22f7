"""meshtf beside others, each workload in every system in one run: what `make bench` writes into docs/benchmarks.md.

    python -m benchmarks.peers
    python -m benchmarks.peers --workloads=decoding,resnet --rounds=3
    python -m benchmarks.peers --plain-cpu

The tables stand on the page between comments with the workload's name, and what is measured is by default all that the
page has a place for. Each is written as soon as it is measured, with its picture, and those of other workloads stay.
Every program's last loss is in it, so that none is fast and wrong.

With `--plain-cpu` the libraries of all systems choose the kernels of a CPU without AVX-512. These tables have places
of their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import sys
import traceback
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import keras
import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import floors
from benchmarks.machine import machine
from benchmarks.other_programs import ProcessorTime
from benchmarks.plain_cpu import assignments, restricted
from benchmarks.side_by_side import Row, as_table, side_by_side
from benchmarks.workloads import (
    decoding,
    digits,
    experts,
    perceptron,
    resnet,
    small_transformer,
    wide_transformer,
)
from benchmarks.workloads.workload import Workload

WORKLOADS = {
    "transformer": small_transformer.WORKLOAD,
    "wide_transformer": wide_transformer.WORKLOAD,
    "perceptron": perceptron.WORKLOAD,
    "resnet": resnet.WORKLOAD,
    "experts": experts.WORKLOAD,
    "decoding": decoding.WORKLOAD,
    "digits": digits.WORKLOAD,
}
PAGE = Path(__file__).parents[1] / "docs/benchmarks.md"
CONTENDED = 0.05
"""The share of all processors from which on other programs are said to have disturbed a run."""
PLAIN = "as on a CPU without AVX-512"

_SECTION = """\
{machine}; JAX {jax}, Keras {keras}. {rounds} rounds of {steps} steps. {load}

{table}

![Time of a step as a ratio to the first row's]({picture})
"""


def measured(workload: Workload, names: list[str], rounds: int) -> tuple[dict[str, Row], float | None]:
    """A row for each program, and the share of the processors that others had in the meantime."""
    before = ProcessorTime.now()
    rows = side_by_side(workload.module, names, workload.steps, rounds, workload.warm_up)
    return rows, ProcessorTime.now().others_since(before)


def section(workload: Workload, rows: Mapping[str, Row], others: float | None, picture: str, *, is_plain: bool) -> str:
    """`is_plain`: the libraries had the kernels of a CPU without AVX-512."""
    return _SECTION.format(
        machine=machine() + (f", {PLAIN} (`{assignments()}`)" if is_plain else ""),
        jax=jax.__version__,
        keras=keras.__version__,
        rounds=len(next(iter(rows.values())).ratios),
        steps=workload.steps,
        load=load(others),
        table=as_table(rows),
        picture=picture,
    )


def load(others: float | None) -> str:
    """How much else the machine did, and what that means for the numbers."""
    if others is None:
        return "What else the machine did is not known."
    if others < CONTENDED:
        return f"Other programs had {others:.0%} of the processors."
    return (
        f"**Contended**: other programs had {others:.0%} of the processors; ratios and CPU times are to be read, "
        "milliseconds and first calls not."
    )


def drawn(title: str, rows: Mapping[str, Row]) -> Figure:
    """A bar for each program: the median of its ratios, with the least and the largest."""
    figure = Figure(figsize=(8, 0.35 * len(rows) + 1.2), layout="constrained")
    plot = figure.subplots()
    medians = [statistics.median(row.ratios) for row in rows.values()]
    below = [m - min(row.ratios) for m, row in zip(medians, rows.values(), strict=True)]
    above = [max(row.ratios) - m for m, row in zip(medians, rows.values(), strict=True)]
    colors = ["tab:blue" if name.startswith("meshtf") else "tab:gray" for name in rows]
    plot.barh(list(rows), medians, xerr=[below, above], color=colors, ecolor="black", capsize=2)
    plot.axvline(1, color="black", linewidth=0.5)
    plot.invert_yaxis()
    plot.set(title=title, xlabel=f"time of a step / {next(iter(rows))}")
    return figure


def put(page: Path, name: str, text: str) -> None:
    """Between the comments `<!-- name -->` and `<!-- end of name -->`."""
    old = page.read_text()
    new, found = _place(name).subn(lambda _: f"<!-- {name} -->\n\n{text}\n<!-- end of {name} -->", old)
    if found != 1:
        raise SystemExit(f"{page} has {found} places {_place(name).pattern!r}, and must have one")
    page.write_text(new)


def has_place(page: Path, name: str) -> bool:
    return _place(name).search(page.read_text()) is not None


def _place(name: str) -> re.Pattern[str]:
    return re.compile(f"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)


def place_of(workload: str, *, is_plain: bool) -> str:
    """The name of its table and its picture."""
    return f"plain_cpu_{workload}" if is_plain else workload


def chosen(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(WORKLOADS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workloads", type=chosen, help=f"some of {','.join(WORKLOADS)}; by default all that the page has a place for"
    )
    parser.add_argument("--rounds", type=int, help="by default what each workload says")
    parser.add_argument("--only", nargs="*", help="programs whose names hold one of these, and each table's first")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the tables are put")
    parser.add_argument("--plain-cpu", action="store_true", help="with the kernels of a CPU without AVX-512")
    arguments = parser.parse_args()
    page, is_plain = arguments.page, arguments.plain_cpu
    places = {name: place_of(name, is_plain=is_plain) for name in WORKLOADS}
    lacking = [name for name in WORKLOADS if not has_place(page, places[name])]
    names = arguments.workloads or [name for name in WORKLOADS if name not in lacking]
    if without := [places[name] for name in names if name in lacking]:
        parser.error(f"{page} has no <!-- name --> to <!-- end of name --> for {', '.join(without)}: write them there")
    if is_plain:
        os.environ.update(restricted(os.environ))  # of the processes that are started; this one only writes
    pictures = page.parent / "benchmarks"
    pictures.mkdir(exist_ok=True)
    failed = []
    if not arguments.workloads and not is_plain:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            put(page, "floors", pool.submit(floors.text).result())
    for name in names:
        workload, place = WORKLOADS[name], places[name]
        print(f"{workload.title}:", file=sys.stderr)
        programs = list(sys.modules[workload.module].PROGRAMS)
        if arguments.only:
            programs[1:] = [each for each in programs[1:] if any(part in each for part in arguments.only)]
        try:
            rows, others = measured(workload, programs, arguments.rounds or workload.rounds)
        except Exception:  # of any of the systems; the other workloads are measured all the same
            traceback.print_exc()
            failed.append(name)
            continue
        with mpl.rc_context({"svg.hashsalt": "meshtf"}):
            drawn(workload.title + (f", {PLAIN}" if is_plain else ""), rows).savefig(
                pictures / f"{place}.svg", metadata={"Date": None}
            )
        text = section(workload, rows, others, f"benchmarks/{place}.svg", is_plain=is_plain)
        put(page, place, text)
        print(text, flush=True)
    if failed:
        raise SystemExit(f"not measured, since a program failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
