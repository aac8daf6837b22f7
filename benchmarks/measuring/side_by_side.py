"""Measures programs side by side: each in a separate process, in rounds that take turns, so that one runs at a time.

So all programs are measured under the same load. Times of rounds vary with other work on the machine. Their ratios and
CPU times vary much less.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

Step = Callable[[], Any]
"""A training step. It returns the loss, convertible by float(). If the model differs from the other programs' model, it
returns None, and must check its result itself."""


@runtime_checkable
class OfProcesses(Protocol):
    """A program with additional processes. Their start and imports do not count in its first call."""

    def start(self) -> Callable[[], Step]:
        """Returns a function that makes the step, once the other processes have finished their imports."""
        ...


Program = Callable[[], Step] | OfProcesses


@dataclasses.dataclass(frozen=True)
class Usage:
    """The resources that a process has used: seconds, CPU seconds in user and kernel mode, minor page faults."""

    wall: float
    user: float
    system: float
    faults: int

    @classmethod
    def now(cls) -> Usage:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.perf_counter(), used.ru_utime, used.ru_stime, used.ru_minflt)

    def since(self, before: Usage) -> Usage:
        return Usage(*(a - b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(before), strict=True)))


@dataclasses.dataclass(frozen=True)
class Round:
    """Several steps of one program: the median seconds of a step, the resources of all steps, and the last loss."""

    step: float
    used: Usage
    loss: float | None


@dataclasses.dataclass(frozen=True)
class Row:
    """The measurements of one program.

    Attributes:
      first_call: seconds until the end of the first step, with tracing and compilation, without imports.
      step: the median of all rounds' medians, ms.
      ratios: the ratio of each round's median to the first program's in the same round.
      user, system: CPU time of a step, ms, the least of the rounds.
      faults: page faults of a step in the last round.
      peak_mib: the peak of resident memory in MiB, above its size after all imports and before the first call.
      loss: the last loss, after the same number of steps as the others; None if it is not comparable.
    """

    first_call: float
    step: float
    ratios: Sequence[float]
    user: float
    system: float
    faults: float
    peak_mib: float
    loss: float | None


def side_by_side(module: str, names: Sequence[str], steps: int, rounds: int, warm_up: int = 3) -> dict[str, Row]:
    """Measures the named programs of `module.PROGRAMS`, and reports progress on standard error.

    A program is a function that makes a step, or `OfProcesses`. The others are compared with the first.
    """
    spawning = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pools = {
            name: stack.enter_context(concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning)) for name in names
        }
        first = {}
        for name, pool in pools.items():
            first[name] = pool.submit(_first_call, module, name).result()
            _tell(f"{name}: first call {first[name]:.1f} s")
        for name, pool in pools.items() if warm_up else ():
            pool.submit(_round, module, name, warm_up).result()
        taken = []
        for number in range(rounds):
            taken.append({n: pool.submit(_round, module, n, steps).result() for n, pool in pools.items()})
            ratios = ", ".join(f"{taken[-1][n].step / taken[-1][names[0]].step:.2f}" for n in names)
            _tell(f"round {number + 1} of {rounds}: {taken[-1][names[0]].step * 1e3:.1f} ms, times {ratios}")
        peaks = {name: pool.submit(_peak_mib).result() for name, pool in pools.items()}
    return {name: _row(name, names[0], first[name], taken, steps, peaks[name]) for name in names}


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _row(
    name: str, baseline: str, first: float, taken: Sequence[Mapping[str, Round]], steps: int, peak_mib: float
) -> Row:
    own = [each[name] for each in taken]
    return Row(
        first_call=first,
        step=statistics.median(r.step for r in own) * 1e3,
        ratios=[each[name].step / each[baseline].step for each in taken],
        user=min(r.used.user for r in own) / steps * 1e3,
        system=min(r.used.system for r in own) / steps * 1e3,
        faults=own[-1].used.faults / steps,
        peak_mib=peak_mib,
        loss=own[-1].loss,
    )


@functools.cache
def _maker(module: str, name: str) -> Callable[[], Step]:
    program: Program = importlib.import_module(module).PROGRAMS[name]
    return program.start() if isinstance(program, OfProcesses) else program


@functools.cache
def _made(module: str, name: str) -> Step:
    return _maker(module, name)()


def _loss_of(step: Step) -> float | None:
    """Runs a step to its end, and returns its loss."""
    value = step()
    return None if value is None else float(value)


def _first_call(module: str, name: str) -> float:
    _maker(module, name)
    _peak_mib()
    began = time.perf_counter()
    _loss_of(_made(module, name))
    return time.perf_counter() - began


def _round(module: str, name: str, steps: int) -> Round:
    step, times, loss = _made(module, name), [], None
    before = Usage.now()
    for _ in range(steps):
        began = time.perf_counter()
        loss = _loss_of(step)
        times.append(time.perf_counter() - began)
    return Round(statistics.median(times), Usage.now().since(before), loss)


@functools.cache
def _imported_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _peak_mib() -> float:
    imported = _imported_mib()  # cached: the value of the first call
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - imported


HEAD = (
    "| program | first call, s | step, ms | ratio | of rounds | CPU, ms | faults | peak, MiB | loss |\n"
    + "|---" * 9
    + "|"
)


def as_table(rows: Mapping[str, Row]) -> str:
    """The rows as a Markdown table, with the median, the least and the largest of the ratios."""
    return "\n".join([HEAD, *(_line(name, row) for name, row in rows.items())])


def _line(name: str, row: Row) -> str:
    ratio, least, largest = statistics.median(row.ratios), min(row.ratios), max(row.ratios)
    loss = "-" if row.loss is None else f"{row.loss:.5f}"
    cells = [
        name, f"{row.first_call:.1f}", f"{row.step:.1f}", f"{ratio:.2f}", f"{least:.2f} to {largest:.2f}",
        f"{row.user:.0f}+{row.system:.0f}", f"{row.faults:,.0f}", f"{row.peak_mib:,.0f}", loss,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"
