"""How far training is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from meshtf.train.monitoring.metrics import Vectors

LINES_PER_RUN = 10
LONGEST_SILENCE = 60.0  # seconds

_STEPS_REMEMBERED = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """How fast training is.

    Attributes:
      seconds_per_step: the mean of the last hundred, without the first of the process, which compiles.
      per_second: how many of `unit` that is.
      unit: "tokens", or "examples" where there are none.
      share_of_peak: the program's FLOPs in a second, of what the cores can do; None where that is not known.
      is_compilation: whether it is of the first step alone.
    """

    seconds_per_step: float
    per_second: float
    unit: str
    share_of_peak: float | None = None
    is_compilation: bool = False

    def __str__(self) -> str:
        if self.is_compilation:
            return f"compiled in {duration(self.seconds_per_step)}"
        peak = "" if self.share_of_peak is None else f"  {self.share_of_peak:.1%} of peak"
        return f"{self.per_second:,.0f} {self.unit}/s{peak}"


@dataclasses.dataclass(frozen=True, slots=True)
class StepReport:
    """What is shown of one step.

    Attributes:
      step: its number, from 1.
      loss: of the step's batch, before the update.
      speed: so far.
      scalars: what the model has to show, by name, such as "mixture_of_experts/dropped".
      vectors: by name, such as the load of each expert; shown as `least..most`.
    """

    step: int
    loss: float
    speed: Speed
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    vectors: Vectors = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        scalars = [(name, f"{value:.3g}") for name, value in self.scalars.items()]
        vectors = [(name, f"{x.min():.2g}..{x.max():.2g}") for name, x in self.vectors.items()]
        shown = "".join(f"{name.rpartition('/')[2]} {text}  " for name, text in [*scalars, *vectors])
        return f"loss {self.loss:.4f}  {shown}{self.speed}"


class Speedometer:
    """Measures steps; what happens between them, such as an evaluation, is left out."""

    def __init__(self, count: int, unit: str, flops_of_peak: float | None = None) -> None:
        """`count` of `unit` are in a step; `flops_of_peak`: a step's FLOPs over the FLOPs per second at peak."""
        self._count, self._unit, self._flops_of_peak = count, unit, flops_of_peak
        self._seconds: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._steps = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measures what is done inside as one step."""
        start = time.perf_counter()
        yield
        if self._steps == 1:
            self._seconds.clear()
        self._steps += 1
        self._seconds.append(max(time.perf_counter() - start, 1e-9))

    @property
    def speed(self) -> Speed:
        seconds = sum(self._seconds) / len(self._seconds)
        share = None if self._flops_of_peak is None else self._flops_of_peak / seconds
        return Speed(seconds, self._count / seconds, self._unit, share, is_compilation=self._steps == 1)


class ProgressDisplay(Protocol):
    """Shows each step as it is done."""

    def show(self, report: StepReport) -> None: ...


class ProgressLines:
    """Prints about ten lines a run, and one a minute where steps are slow."""

    def __init__(self, num_steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._num_steps, self._clock = num_steps, clock
        self._shown_at: float | None = None

    def show(self, report: StepReport) -> None:
        now, every = self._clock(), max(1, self._num_steps // LINES_PER_RUN)
        is_first = self._shown_at is None
        if is_first or report.step % every == 0 or report.step == self._num_steps or self._is_silent(now):
            self._shown_at = now
            left = (self._num_steps - report.step) * report.speed.seconds_per_step
            rest = "" if report.speed.is_compilation or not left else f"  {duration(left)} left"
            print(f"step {report.step:>{len(str(self._num_steps))}}/{self._num_steps}  {report}{rest}", flush=True)

    def _is_silent(self, now: float) -> bool:
        return self._shown_at is not None and now - self._shown_at >= LONGEST_SILENCE


@dataclasses.dataclass(frozen=True)
class ProgressBar:
    """Draws a bar."""

    progress: Progress
    task: TaskID

    def show(self, report: StepReport) -> None:
        self.progress.update(self.task, completed=report.step, status=str(report))


@contextlib.contextmanager
def progress_display(num_steps: int, first_step: int = 0, console: Console | None = None) -> Iterator[ProgressDisplay]:
    """A bar where stdout is a terminal, else lines. `first_step` steps have been taken already."""
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
        task = progress.add_task("training", total=num_steps, completed=first_step, status="compiling")
        yield ProgressBar(progress, task)


def duration(seconds: float) -> str:
    """As `45 s`, `12 min` or `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
