"""Compares measured and predicted times and memory of steps of four models, under eight layouts each.

    python -m benchmarks.cost_model.predicted_times
    python -m benchmarks.cost_model.predicted_times --models=mlp --parts=virtual --machine=here.toml --page=
    python -m benchmarks.cost_model.predicted_times --clock=cpu

There are three parts:

- 8 virtual CPUs of one process;
- two processes of 4 virtual CPUs each, joined on the loopback;
- the peak of resident memory of one process that returns freed memory to the system (see `benchmarks.memory`), compared
  with the peak from the report's memory over time, for 8 cores that take turns on the processors (`taking_turns`).

The machine is probed first, unless a file describes it. The link between two processes is probed when they have joined.
At the end come Spearman's rank correlation of measured and predicted times, over all steps and within each model, and
the median of relative errors. The tables are written into docs/cost_model.md.

With `--clock=cpu`, seconds are CPU time divided by the processors, for a machine that others also use.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.clusters.joined_processes import Place, Processes, processes
from benchmarks.cost_model.predicted_models import MODELS
from benchmarks.measuring.machine import machine
from benchmarks.memory import GIVES_BACK, MEBIBYTE, rise
from meshtf.costs import Machine, NetworkLevel, load_machine, predict
from meshtf.lowering.report.report import Report
from meshtf.mesh_impl.virtual_cpus import num_processors
from meshtf.probe import cpu_clock, probe

CORES = 8
PAGE = Path(__file__).parents[2] / "docs/cost_model.md"
BEGIN, END = "<!-- predicted_times -->", "<!-- end of predicted_times -->"
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": cpu_clock}
FEW, MANY = 64, 1 << 19
"""The elements of each core's slice when links between processes are probed."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One layout of one model."""

    model: str
    mesh_shape: str
    layout: str

    def step(self) -> mtf.Function:
        program, shape, _ = MODELS[self.model]
        mesh_impl = mtf.SpmdMeshImpl(self.mesh_shape, self.layout)
        return mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec(shape)})

    def example(self) -> tf.Tensor:
        return tf.random.stateless_normal([d.size for d in MODELS[self.model][1]], [1, 2])


@dataclasses.dataclass(frozen=True)
class Row:
    """The measured and the predicted figure of a case, in seconds or bytes."""

    case: Case
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def cases(models: Sequence[str], layouts: int) -> list[Case]:
    return [Case(name, *rules) for name in models for rules in MODELS[name][2][:layouts]]


def least(call: Callable[[], object], runs: int, clock: str) -> float:
    """The seconds of the fastest of `runs` calls, after one that compiles."""
    call()
    times = []
    for _ in range(runs):
        began = CLOCKS[clock]()
        call()
        times.append(CLOCKS[clock]() - began)
    return min(times)


def timed(index: int, case: Case, own: Machine, runs: int, clock: str) -> tuple[float, float]:
    """The measured and the predicted seconds of a step. Every process runs this."""
    step, x = case.step(), case.example()
    return least(lambda: step(x=x), runs, clock), predict(step.report(), own).seconds


def summed_between(index: int, elements: int, runs: int, clock: str) -> float:
    """The seconds of a sum over the processes, of all cores at once. Every process runs this."""
    mesh_impl = mtf.SpmdMeshImpl(f"hosts:2;inner:{CORES // 2}", "hosts:hosts;inner:inner")
    shape = [mtf.Dimension("hosts", 2), mtf.Dimension("inner", CORES // 2), mtf.Dimension("elements", elements)]

    def seconds(links: int) -> float:
        def program(x: mtf.Tensor) -> mtf.Tensor:
            y = x
            for _ in range(links):
                y = x + mtf.reduce_sum(y, reduced_dim="hosts")
            return mtf.reduce_sum(y)

        step, x = (
            mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec(shape)}),
            tf.zeros([d.size for d in shape]),
        )
        return least(lambda: step(x=x), runs, clock)

    short, long = (seconds(links) for links in (4, 12))
    return max(long - short, 1e-9) / 8


def in_all(results: Sequence[float], clock: str) -> float:
    """The time of all processes together: the longest wall-clock time, or the sum of their CPU times."""
    return sum(results) if clock == "cpu" else max(results)


def with_link(own: Machine, joined: Processes, runs: int, clock: str) -> Machine:
    """The machine with one more network level, the link between two processes."""
    few, many = (in_all(joined.run(summed_between, n, runs, clock), clock) for n in (FEW, MANY))
    latency = max(few - own.collective_seconds, 0.0) / 2
    bandwidth = CORES * 4 * (MANY - FEW) / max(many - few, 1e-9)
    assert isinstance(own.links, tuple)
    within = dataclasses.replace(own.links[0], cores=CORES // 2)
    return dataclasses.replace(own, links=(within, NetworkLevel(None, bandwidth, latency)))


def on_virtual_cpus(listed: Sequence[Case], own: Machine, runs: int, clock: str) -> list[Row]:
    return [_told(Row(case, *timed(0, case, own, runs, clock)), "ms", 1e-3) for case in listed]


def on_processes(listed: Sequence[Case], own: Machine, runs: int, clock: str) -> list[Row]:
    with processes([Place(), Place()], CORES // 2) as joined:
        linked = with_link(own, joined, runs, clock)
        print(linked.links)
        rows = []
        for case in listed:
            results = joined.run(timed, case, linked, runs, clock)
            measured, predicted = zip(*results, strict=True)
            rows.append(_told(Row(case, in_all(measured, clock), predicted[0]), "ms", 1e-3))
        return rows


def of_memory(listed: Sequence[Case]) -> list[Row]:
    """The rows of memory. Each model is measured in a separate process."""
    rows = []
    for name in dict.fromkeys(case.model for case in listed):
        own = [case for case in listed if case.model == name]
        command = [
            sys.executable,
            "-m",
            "benchmarks.cost_model.predicted_times",
            f"--memory_of={name}",
            f"--layouts={len(own)}",
        ]
        output = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **GIVES_BACK}
        ).stdout
        for case, (measured, predicted) in zip(own, json.loads(output.splitlines()[-1]), strict=True):
            rows.append(_told(Row(case, measured, predicted), "MiB", MEBIBYTE))
    return rows


def memory_of(listed: Sequence[Case]) -> list[tuple[int, int]]:
    """The bytes of all cores together for each case, measured and predicted.

    The measurement is how far the process's memory rises in a step above its memory between steps, after compilation.
    The variables are added, since the process also holds them between steps.
    """
    found = []
    for case in listed:
        step, x = case.step(), case.example()
        call = functools.partial(step, x=x)
        call()
        memory = step.report().memory
        found.append((rise(call) + CORES * memory.variables, taking_turns(step.report(), num_processors())))
    return found


def taking_turns(report: Report, processors: int) -> int:
    """The peak bytes of all cores together, if only `processors` cores work between one collective and the next.

    The other cores wait at one of the two collectives. A collective whose result is not needed soon, such as the sum of
    a gradient, makes no core wait. So this overestimates layouts whose only collectives are sums of gradients.
    """
    held, most, peak = 0, 0, 0
    for moment in report.memory_timeline:
        most = max(most, moment.total)
        if report.operations[moment.operation].category == "collective":
            waits = moment.total - moment.temporary
            peak = max(peak, processors * most + (report.cores - processors) * max(held, waits))
            held, most = waits, moment.total
    return max(peak, processors * most + (report.cores - processors) * held)


def _told(row: Row, unit: str, size: float) -> Row:
    numbers = f"{row.measured / size:>10.2f} {row.predicted / size:>10.2f} {unit} {row.ratio:>6.2f}"
    print(f"{row.case.model:14}{row.case.mesh_shape:>10}  {row.case.layout:34}{numbers}", flush=True)
    return row


def rank_correlation(rows: Sequence[Row]) -> float:
    ranks = [np.argsort(np.argsort([getattr(row, name) for row in rows])) for name in ("measured", "predicted")]
    return float(np.asarray(np.corrcoef(np.array(ranks)))[0, 1])


def summary(rows: Sequence[Row]) -> str:
    """How well predictions match, over all steps and within each model."""
    errors = [abs(row.ratio - 1) for row in rows]
    models = dict.fromkeys(row.case.model for row in rows)
    within = [f"{name} {rank_correlation([r for r in rows if r.case.model == name]):.2f}" for name in models]
    return (
        f"rank correlation {rank_correlation(rows):.2f} (within {', '.join(within)}), "
        f"median error {np.median(errors):.0%}, predicted over measured {min(r.ratio for r in rows):.2f} to "
        f"{max(r.ratio for r in rows):.2f}"
    )


def table(found: dict[str, list[Row]]) -> str:
    """One row for each case: measured, predicted and their ratio for each part."""
    heads = {"virtual": "8 virtual CPUs, ms", "processes": "2 processes, ms", "memory": "memory, MiB"}
    columns = [text for part in found for text in (heads[part], "predicted", "ratio")]
    lines = [f"| model | mesh | layout | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|"]
    for rows in zip(*found.values(), strict=True):
        case = rows[0].case
        cells = [case.model, f"`{case.mesh_shape}`", f"`{case.layout}`"]
        for part, row in zip(found, rows, strict=True):
            size = MEBIBYTE if part == "memory" else 1e-3
            numbers = (row.measured / size, row.predicted / size)
            cells += [*(f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in numbers), f"{row.ratio:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written(page: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replaces the text between two marks of the page."""
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layouts", type=int, default=8, help="how many of each model")
    parser.add_argument("--parts", default="virtual,processes,memory")
    parser.add_argument("--machine", default="", help="a machine's file; without, this one is probed")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--page", default=str(PAGE), help="where the tables go; nowhere if empty")
    parser.add_argument("--memory_of", default="", help="measures the memory of one model, in this process")
    arguments = parser.parse_args()
    mtf.virtual_cpus(CORES)
    if arguments.memory_of:
        print(json.dumps(memory_of(cases([arguments.memory_of], arguments.layouts))))
        return
    parts, runs, clock = arguments.parts.split(","), arguments.runs, arguments.clock
    print(machine())
    own = load_machine(arguments.machine) if arguments.machine else probe(clock=CLOCKS[clock])
    print(own)
    listed = cases(arguments.models.split(","), arguments.layouts)
    measuring: dict[str, Callable[[], list[Row]]] = {
        "virtual": lambda: on_virtual_cpus(listed, own, runs, clock),
        "processes": lambda: on_processes(listed, own, runs, clock),
        "memory": lambda: of_memory(listed),
    }
    found = {part: measuring[part]() for part in parts}
    kind = "CPU time over the processors" if clock == "cpu" else "Wall time"
    lines = [f"{machine()}, {num_processors()} processors. {kind}, the least of {runs} steps.", ""]
    names = {"virtual": "8 virtual CPUs", "processes": "2 processes of 4", "memory": "Peak memory"}
    lines += [f"- **{names[part]}**: {summary(rows)}." for part, rows in found.items()]
    text = "\n".join([*lines, "", table(found)])
    print(text)
    if arguments.page:
        written(Path(arguments.page), text)


if __name__ == "__main__":
    main()
