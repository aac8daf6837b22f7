"""Taking up a run where it stopped: what a checkpoint holds beside variables, and what must be as it was."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint import SavedCheckpoint, restore
from meshtf.train.configuration import ConfigurationError
from meshtf.train.run_folder import RunFolder
from meshtf.train.task import Position
from meshtf.train.trainer import Trainer
from meshtf.train.training import Training

_ANOTHER_RUN = """\
{folder} holds another run, at step {step}:
{differences}
The data could not be continued where it stopped. Give the old values, or another --model_dir."""


@dataclasses.dataclass(frozen=True)
class RunState:
    """What is saved beside the variables.

    Attributes:
      seed, batch_size, task: of the training; a position in the data means something with these alone.
      position: in the data.
      callbacks: what the callbacks of the run remember.
    """

    seed: int
    batch_size: int
    task: str
    position: Position | None
    callbacks: dict[str, Any] | None = None

    @classmethod
    def of(cls, training: Training, position: Position | None, callbacks: dict[str, Any] | None = None) -> RunState:
        return cls(training.seed, training.batch_size, training.task.name, position, callbacks)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RunState:
        return cls(**{field.name: state.get(field.name) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a run begins: after which step, at which position in the data, and what its callbacks remember."""

    step: int = 0
    position: Position | None = None
    callbacks: dict[str, Any] | None = None


def resumed_start(trainer: Trainer, folder: RunFolder) -> Start:
    """Restores the newest checkpoint of a run that is whole, if it has one. What a killed process left is removed.

    Raises:
      ConfigurationError: it is of a training with another seed, batch size or task.
      CheckpointError: it is of another model or optimizer.
    """
    checkpoints = folder.checkpoints()
    checkpoints.remove_unfinished()
    saved = checkpoints.newest_readable()
    if saved is None:
        return Start()
    position = _resumed_position(trainer.training, saved, folder.path)
    restore(saved, trainer.programs)
    return Start(saved.step, position, RunState.from_dict(saved.state).callbacks)


def _resumed_position(training: Training, saved: SavedCheckpoint, folder: Path) -> Position | None:
    """Where the data continue after a checkpoint of this training."""
    state, own = RunState.from_dict(saved.state), RunState.of(training, None)
    differences = [
        f"  Training.{name} was {getattr(state, name)!r} and is {getattr(own, name)!r}"
        for name in ("seed", "batch_size", "task")
        if getattr(state, name) != getattr(own, name)
    ]
    if differences:
        raise ConfigurationError(
            _ANOTHER_RUN.format(folder=folder, step=saved.step, differences="\n".join(differences))
        )
    return state.position


def changed_bindings(before: str, now: str) -> list[str]:
    """How two gin configurations differ: `name: old -> new`, for each binding that is not the same in both."""
    old, new = bindings_of(before), bindings_of(now)
    return [
        f"{name}: {old.get(name, '(not there)')} -> {new.get(name, '(not there)')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def bindings_of(text: str) -> dict[str, str]:
    """The bindings of an operative configuration, by name. A long value is continued on indented lines."""
    joined = re.sub(r"\\?\n[ \t]+", " ", text)
    pairs = [line.partition(" = ") for line in joined.splitlines() if not line.startswith("#") and " = " in line]
    return {name.strip(): " ".join(value.split()) for name, _, value in pairs}
