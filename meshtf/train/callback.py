"""Callbacks, which observe a training and may end it, and the interface through which they see its run."""

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
    """A callback failed. The message names the callback, the event and the step, and says from where the training
    resumes.
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
        """The folder that the run writes to. Callbacks write their files there as well."""
        ...

    @property
    def step(self) -> int:
        """The number of steps taken so far, including those of earlier runs."""
        ...

    @property
    def first_step(self) -> int:
        """The number of steps that had been taken when this run began: 0, or the step of the checkpoint it
        resumed from.
        """
        ...

    def stop(self, reason: str) -> None:
        """Ends training as after the last step, with a checkpoint and an evaluation. Steps that have already
        started are still taken. The reason is printed.
        """
        ...

    def save_checkpoint(self) -> None:
        """Requests a checkpoint, even if none is due. It follows the steps that have already started."""
        ...

    def keep_checkpoint(self, step: int) -> None:
        """Keeps the checkpoint of a step in addition to the newest, until it is released as often as it was kept."""
        ...

    def release_checkpoint(self, step: int) -> None:
        """Allows the checkpoint of a step to be deleted, once there are enough newer ones."""
        ...


class Callback:
    """An object whose methods run at the events of a training. Each method does nothing unless a subclass overrides it.

    The methods run in the main thread, between steps, and training waits for them. An event costs nothing if its method
    is not overridden.

    Attributes:
      is_observer: whether it only watches, like a writer of curves. If an observer fails, a line says so, and training
        continues without it. If another callback fails, training ends with a checkpoint. A dry run skips observers.
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

        `state` is the result of `state_dict` in the checkpoint from which the run resumes, or {} if there is none. One
        object may serve several runs, one after the other. Reset its state of the previous run here.
        """

    def on_step(self, run: Run, report: StepReport) -> None:
        """Runs after every step."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """Runs after an evaluation on the held-out examples, once for each step, even if the run was resumed.

        But the last checkpoint is written before the last evaluation. If a finished run is started again, a callback
        that is no observer gets this evaluation again, with its state from before it.
        """

    def on_checkpoint(self, run: Run, checkpoint: Path) -> None:
        """Runs when a checkpoint is complete on disk. That may be some steps after the step of the checkpoint."""

    def on_end(self, run: Run, outcome: Outcome) -> None:
        """Runs at the end of this run, unless SIGKILL or a second signal ends it.

        `outcome` is "finished" (all steps are taken), "stopped early" (a callback asked for it), "interrupted" (by a
        signal), or "failed".
        """

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a resumed run needs, in types that JSON can hold. It is stored in every
        checkpoint.
        """
        return {}
