"""Shows how far training is: lines, and on a terminal a bar below them."""

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

LONGEST_SILENCE = 60.0  # seconds

_STEPS_REMEMBERED = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """The speed of training.

    Attributes:
      seconds_per_step: the mean of the last hundred steps, without the first of the process, which compiles.
      per_second: how many of `unit` are processed in a second.
      unit: "tokens", or "examples" if there are no tokens.
      share_of_peak: the program's FLOPs in a second as a share of the cores' peak. None if that is not known.
      is_compilation: whether only the first step has been measured.
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
    """The report of one step.

    Attributes:
      step: its number, from 1.
      loss: the loss of the step's batch, before the update.
      speed: the speed so far.
      scalars: the model's scalars to show, by name, such as "mixture_of_experts/dropped".
      vectors: the model's vectors by name, such as the load of each expert. They are shown as `least..most`.
      summaries: the other scalars, such as the learning rate, which are written and not shown.
      is_logged: whether the metrics of this step are written.
      evaluation_seconds_left: the seconds that the remaining evaluations will take. 0 until one is measured.
    """

    step: int
    loss: float
    speed: Speed
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    vectors: Vectors = dataclasses.field(default_factory=dict)
    summaries: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_logged: bool = True
    evaluation_seconds_left: float = 0.0

    @property
    def values(self) -> dict[str, float]:
        """All scalars, by the names under which they are written. The speed is among them, except for a step
        that compiles.
        """
        values = {"loss": self.loss, **self.scalars, **self.summaries}
        if not self.speed.is_compilation:
            values[f"{self.speed.unit}_per_second"] = round(self.speed.per_second, 1)
            if self.speed.share_of_peak is not None:
                values["share_of_peak_flops"] = round(self.speed.share_of_peak, 4)
        return values

    def __str__(self) -> str:
        scalars = [(name, f"{value:.3g}") for name, value in self.scalars.items()]
        vectors = [(name, f"{x.min():.2g}..{x.max():.2g}") for name, x in self.vectors.items()]
        shown = "".join(f"{name.rpartition('/')[2]} {text}  " for name, text in [*scalars, *vectors])
        return f"loss {self.loss:.4f}  {shown}{self.speed}"


class Speedometer:
    """Measures steps. It leaves out work between them, such as an evaluation."""

    def __init__(self, count: int, unit: str, flops_of_peak: float | None = None) -> None:
        """Begins without steps. A step has `count` of `unit`.

        `flops_of_peak`: a step's FLOPs over the FLOPs per second at peak.
        """
        self._count, self._unit, self._flops_of_peak = count, unit, flops_of_peak
        self._seconds: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._steps = 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measures the body as one step."""
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
    """A display that shows each step as it is done."""

    def show(self, report: StepReport) -> None: ...


class ProgressLines:
    """Prints a line for each logged step, and at least one a minute."""

    def __init__(
        self, num_steps: int, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._num_steps, self._write, self._clock = num_steps, write, clock
        self._shown_at = clock()

    def show(self, report: StepReport) -> None:
        now = self._clock()
        if report.is_logged or now - self._shown_at >= LONGEST_SILENCE:
            self._shown_at = now
            left = (self._num_steps - report.step) * report.speed.seconds_per_step
            rest = "" if report.speed.is_compilation or not left else f"  {duration(left)} left"
            if rest and report.evaluation_seconds_left >= 1:
                rest += f", and {duration(report.evaluation_seconds_left)} of evaluations"
            self._write(f"step {report.step:>{len(str(self._num_steps))}}/{self._num_steps}  {report}{rest}")


@dataclasses.dataclass(frozen=True)
class ProgressBar:
    """Draws a bar, below the lines."""

    lines: ProgressLines
    progress: Progress
    task: TaskID

    def show(self, report: StepReport) -> None:
        self.lines.show(report)
        self.progress.update(self.task, completed=report.step)


@contextlib.contextmanager
def progress_display(num_steps: int, first_step: int = 0, console: Console | None = None) -> Iterator[ProgressDisplay]:
    """Yields a display of lines, with a bar if stdout is a terminal. `first_step` steps have been taken already."""
    console = console or Console()
    if not console.is_terminal:
        yield ProgressLines(num_steps, lambda line: print(line, flush=True))
        return
    columns = [TextColumn("training"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn()]

    def write(line: str) -> None:
        progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    with Progress(*columns, console=console) as progress:
        task = progress.add_task("training", total=num_steps, completed=first_step)
        yield ProgressBar(ProgressLines(num_steps, write), progress, task)


def duration(seconds: float) -> str:
    """Returns a text such as `45 s`, `12 min` or `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
