"""Callbacks: objects that are told of a training as it goes and may end it; and the run as they see it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from meshtf.errors import MeshtfError

if TYPE_CHECKING:
    from meshtf.train.evaluation import Evaluation
    from meshtf.train.monitoring.progress import StepReport
    from meshtf.train.runs.run_folder import RunFolder
    from meshtf.train.trainer import Trainer


class CallbackError(MeshtfError, RuntimeError):
    """A callback failed. The message says which, in which event, after which step, and from where a training
    goes on.
    """


class Outcome(enum.StrEnum):
    """The end of a run: after all steps, or by a callback, a signal or an error."""

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
        """The folder that the run writes to. A callback's own files belong there, too."""
        ...

    @property
    def step(self) -> int:
        """The number of steps taken so far, with those of the runs before this one."""
        ...

    @property
    def first_step(self) -> int:
        """The number of steps that had been taken when this run began: 0, or the step of the checkpoint it
        resumed from.
        """
        ...

    def stop(self, reason: str) -> None:
        """Ends training after this step as after the last one, with a checkpoint and an evaluation. The reason
        is shown.
        """
        ...

    def save_checkpoint(self) -> None:
        """Has a checkpoint written after this step, even if none is due."""
        ...

    def keep_checkpoint(self, step: int) -> None:
        """Keeps the checkpoint of a step beside the newest, until `release_checkpoint` is called as many times."""
        ...

    def release_checkpoint(self, step: int) -> None:
        """Lets the checkpoint of a step be deleted, once there are enough newer ones."""
        ...


class Callback:
    """An object that is told of a training as it goes. Each method does nothing until a subclass overrides it.

    Events come in the main thread, between steps: training waits for them. An event whose method a subclass does not
    override costs nothing.

    Attributes:
      is_observer: whether it only watches, such as a writer of curves. If an observer fails, a line says so, and
        training goes on without it. If another callback fails, training ends with a checkpoint. A dry run leaves
        observers out.
    """

    is_observer: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The name of the callback in messages."""
        return type(self).__name__

    def check(self, trainer: Trainer) -> None:
        """Checks that the callback fits, before a run begins and anything is written.

        Raises:
          ConfigurationError: if it does not fit.
        """

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        """Runs before the first step of this run.

        `state` is the result of `state_dict` in the checkpoint from which the run resumes, and {} if there is none. An
        object may be told of several runs, one after the other. It forgets the run before.
        """

    def on_step(self, run: Run, report: StepReport) -> None:
        """Runs after every step."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Runs after an evaluation on the held-out examples: once for a step, in resumed runs too."""

    def on_checkpoint(self, run: Run, checkpoint: Path) -> None:
        """Runs after a checkpoint is whole on disk. That may be some steps after the step of the checkpoint."""

    def on_end(self, run: Run, outcome: Outcome) -> None:
        """Runs at the end of this run, unless SIGKILL or a second signal ends it.

        `outcome` is "finished" (all steps are taken), "stopped early" (a callback asked for it), "interrupted" (by a
        signal), or "failed".
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to remember if a run is resumed, in types that JSON can hold. It becomes a part of
        checkpoints.
        """
        return {}
