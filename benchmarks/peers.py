"""meshtf beside others, each workload in every system in one run: what `make bench` writes into build/benchmarks.md.

    python -m benchmarks.peers --output=build/benchmarks.md

Every program's last loss is in the table, so that none is fast and wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import statistics
from collections.abc import Mapping
from pathlib import Path

import jax
import keras
import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import perceptron_step, transformer_step
from benchmarks.jax_transformer import jax_by_hand
from benchmarks.machine import machine
from benchmarks.side_by_side import Row, as_table, side_by_side

_PAGE = """\
# Benchmarks

Written by `make bench`, which runs each workload in every system in one run: a process for each program, their rounds
taking turns. The ratio is to the program written by hand in TensorFlow for one device: the median over the rounds, then
the least and the largest. CPU time is that of a step in the cheapest round, the program's own and the kernel's; it
hardly depends on what else the machine does. Faults are minor page faults of a step; the peak is of resident memory
beyond what the imports took. The loss is the last, after equally many steps in all programs of a table.

Not compared yet: DTensor, ResNet-50, mixtures of experts, decoding, and training from start to finish.

{machine}; JAX {jax}, Keras {keras}. {load}

![Time of a step as a ratio to the one by hand]({picture})
"""

_SECOND_STARTS = """
## Second starts

Nothing is kept between starts of a program. On two cores of an AMD EPYC with AVX-512, TensorFlow 2.21, in another run
than the tables': with a folder in which XLA keeps what it compiles, a second start of the small Transformer on eight
virtual CPUs would take 5.9 s of CPU time to the end of its first call, and 12.4 without; 6.7 where a first start shares
the folder among its virtual CPUs. But XLA writes a line of two thousand letters for each segment
that it loads again, warning of instructions that every processor has, and a step fails where the folder's disk is full.
"""

_SECTION = """
## {title}

{about}

{table}
"""


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is measured in every system: programs of `PROGRAMS` by their names, which begin with the title."""

    title: str
    about: str
    steps: int


WORKLOADS = [
    Workload(
        "A small Transformer",
        "4 layers, d_model 256, 8 heads, d_ff 1024, 256 words, batch 16 x 128, Adam "
        "(`benchmarks/transformer_step.py`). In JAX a `shard_map` by hand, with a sum over devices for each gradient, "
        "and weights and moments donated.",
        10,
    ),
    Workload(
        "A perceptron of small layers",
        "32 layers of 64 units, batch 64, SGD with momentum (`benchmarks/perceptron_step.py`): what a step costs "
        "beside its arithmetic.",
        100,
    ),
]
_TRANSFORMER, _PERCEPTRON = (workload.title for workload in WORKLOADS)

PROGRAMS = {
    **{f"{_TRANSFORMER}: {name}": make for name, make in transformer_step.PROGRAMS.items()},
    f"{_TRANSFORMER}: JAX by hand, 1 device": functools.partial(jax_by_hand, 1),
    f"{_TRANSFORMER}: JAX by hand, 8 devices": functools.partial(jax_by_hand, 8),
    **{f"{_PERCEPTRON}: {name}": make for name, make in perceptron_step.PROGRAMS.items()},
}


def measured(workload: Workload, rounds: int) -> dict[str, Row]:
    """A row for each program, by its name without the workload's."""
    names = [name for name in PROGRAMS if name.startswith(workload.title)]
    rows = side_by_side("benchmarks.peers", names, workload.steps, rounds)
    return {name.removeprefix(f"{workload.title}: "): row for name, row in rows.items()}


def drawn(found: Mapping[str, Mapping[str, Row]]) -> Figure:
    """A bar for each program: the median of its ratios, with the least and the largest."""
    figure = Figure(figsize=(8, 0.35 * sum(map(len, found.values())) + 1.2 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), squeeze=False, height_ratios=[len(rows) for rows in found.values()])[:, 0]
    for plot, (title, rows) in zip(axes, found.items(), strict=True):
        medians = [statistics.median(row.ratios) for row in rows.values()]
        below = [m - min(row.ratios) for m, row in zip(medians, rows.values(), strict=True)]
        above = [max(row.ratios) - m for m, row in zip(medians, rows.values(), strict=True)]
        colors = ["tab:blue" if name.startswith("meshtf") else "tab:gray" for name in rows]
        plot.barh(list(rows), medians, xerr=[below, above], color=colors, ecolor="black", capsize=2)
        plot.axvline(1, color="black", linewidth=0.5)
        plot.invert_yaxis()
        plot.set(title=title, xlabel="time of a step / by hand, 1 device")
    return figure


def load() -> str:
    """How busy the machine was, as its load average of the last minutes says."""
    of_15_minutes = os.getloadavg()[2]
    if of_15_minutes <= (os.cpu_count() or 1) + 1:
        return "Nothing else ran."
    return (
        f"Contended: the load average of the last 15 minutes was {of_15_minutes:.1f}, so other programs ran, too; "
        "ratios and CPU times are to be read, milliseconds and first calls not."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path("build/benchmarks.md"))
    arguments = parser.parse_args()
    found = {workload.title: measured(workload, arguments.rounds) for workload in WORKLOADS}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    picture = arguments.output.with_suffix(".svg")
    with mpl.rc_context({"svg.hashsalt": "meshtf"}):
        drawn(found).savefig(picture, metadata={"Date": None})
    head = _PAGE.format(
        machine=machine(), jax=jax.__version__, keras=keras.__version__, load=load(), picture=picture.name
    )
    tables = [_SECTION.format(title=w.title, about=w.about, table=as_table(found[w.title])) for w in WORKLOADS]
    arguments.output.write_text(head + "".join(tables) + _SECOND_STARTS)
    print(arguments.output.read_text())


if __name__ == "__main__":
    main()
