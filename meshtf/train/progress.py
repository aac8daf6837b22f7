"""How far training is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES_PER_RUN = 10


@dataclasses.dataclass(frozen=True, slots=True)
class StepReport:
    """What is shown and logged of one step.

    Attributes:
      step: its number, from 1.
      loss: of the step's batch, before the update.
      examples_per_second: since training's second step; the first one compiles.
    """

    step: int
    loss: float
    examples_per_second: float

    def __str__(self) -> str:
        return f"loss {self.loss:.4f}  {self.examples_per_second:,.0f} examples/s"


class ProgressDisplay(Protocol):
    """Shows each step as it is done."""

    def show(self, report: StepReport) -> None: ...


@dataclasses.dataclass(frozen=True)
class ProgressLines:
    """Prints about ten lines a run."""

    num_steps: int

    def show(self, report: StepReport) -> None:
        every = max(1, self.num_steps // LINES_PER_RUN)
        if report.step % every == 0 or report.step in (1, self.num_steps):
            print(f"step {report.step:>{len(str(self.num_steps))}}/{self.num_steps}  {report}", flush=True)


@dataclasses.dataclass(frozen=True)
class ProgressBar:
    """Draws a bar."""

    progress: Progress
    task: TaskID

    def show(self, report: StepReport) -> None:
        self.progress.update(self.task, completed=report.step, status=str(report))


@contextlib.contextmanager
def progress_display(num_steps: int, console: Console | None = None) -> Iterator[ProgressDisplay]:
    """A bar where stdout is a terminal, else lines."""
    console = console or Console()
    if not console.is_terminal:
        yield ProgressLines(num_steps)
        return
    columns = [
        TextColumn("training"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console) as progress:
        yield ProgressBar(progress, progress.add_task("training", total=num_steps, status="compiling"))


class Speedometer:
    """Examples per second since the end of the first step."""

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._start = time.perf_counter()
        self._steps = -1

    def count_step(self) -> float:
        """Counts one step as done; returns the speed so far (that of the first step alone, after it)."""
        self._steps += 1
        now = time.perf_counter()
        elapsed = max(now - self._start, 1e-9)
        if self._steps == 0:
            self._start = now
        return max(self._steps, 1) * self._batch_size / elapsed
