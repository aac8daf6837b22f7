"""What is told of a training as it goes, and may end it: the events, and what a callback can ask of the run."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from meshtf.errors import MeshtfError

if TYPE_CHECKING:
    from meshtf.train.evaluation import Evaluation
    from meshtf.train.monitoring.progress import StepReport
    from meshtf.train.run_folder import RunFolder
    from meshtf.train.trainer import Trainer


class CallbackError(MeshtfError, RuntimeError):
    """A callback that failed: says which, in which event, after which step, and from where a training goes on."""


class Outcome(enum.StrEnum):
    """How a run ended: all steps taken, by a callback, by a signal, or by an error."""

    FINISHED = "finished"
    STOPPED_EARLY = "stopped early"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class Run(Protocol):
    """A run, as its callbacks see it."""

    @property
    def trainer(self) -> Trainer:
        """The programs, and the variables as they are now."""
        ...

    @property
    def folder(self) -> RunFolder:
        """Where the run writes. A callback's own files belong there, too."""
        ...

    @property
    def step(self) -> int:
        """How many steps have been taken, by the runs before this one, too."""
        ...

    @property
    def first_step(self) -> int:
        """How many had been when this run began: 0, or the step of the checkpoint it resumed from."""
        ...

    def stop(self, reason: str) -> None:
        """Ends training after this step as after the last: with a checkpoint and an evaluation. The reason is shown."""
        ...

    def save_checkpoint(self) -> None:
        """Has a checkpoint written after this step, whether one is due or not."""
        ...

    def keep_checkpoint(self, step: int) -> None:
        """Keeps the checkpoint of a step beside the newest, until `release_checkpoint` is called as often."""
        ...

    def release_checkpoint(self, step: int) -> None:
        """Lets the checkpoint of a step go, once there are enough newer ones."""
        ...


class Callback:
    """What is told of a training as it goes. Each method does nothing, until a subclass gives it something to do.

    Events come in the main thread, between steps: training waits for them. An event whose method a subclass leaves
    alone costs nothing.

    Attributes:
      is_observer: whether it only watches, such as a writer of curves. Where an observer fails, a line says so, and
        training goes on without it. Where another callback fails, training ends with a checkpoint. A dry run leaves
        observers out.
    """

    is_observer: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return type(self).__name__

    def check(self, trainer: Trainer) -> None:
        """Checks, before a run begins and anything is written, that the callback fits.

        Raises:
          ConfigurationError: it does not.
        """

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        """Before the first step of this run.

        `state` is what `state_dict` gave when the checkpoint was saved from which the run resumes, and {} where there
        is none. An object may be told of several runs, one after the other: it forgets the one before.
        """

    def on_step(self, run: Run, report: StepReport) -> None:
        """After every step."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """After an evaluation on the held-out examples: once for a step, in resumed runs too."""

    def on_checkpoint(self, run: Run, checkpoint: Path) -> None:
        """After a checkpoint has been written whole, which may be some steps after the one that it is of."""

    def on_end(self, run: Run, outcome: Outcome) -> None:
        """At the end of this run, however it ends but by SIGKILL, or a second signal.

        `outcome` is "finished" (all steps are taken), "stopped early" (a callback asked for it), "interrupted" (by a
        signal), or "failed".
        """

    def state_dict(self) -> dict[str, Any]:
        """What it must remember where a run is resumed, such as JSON can hold: it becomes a part of checkpoints."""
        return {}
