"""Resumes a run where it stopped: restores the state besides variables, and checks that the rest is unchanged."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint import SavedCheckpoint, restore
from meshtf.errors import CheckpointError, OtherModelError, counted
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import differences, fingerprint_of, in_changed_data
from meshtf.train.initial_checkpoint import initial_checkpoint_of
from meshtf.train.monitoring.metrics import DIGEST, read_metrics
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.task import Fingerprint, Position
from meshtf.train.trainer import Trainer
from meshtf.train.training import Training

_MOST_NAMED = 6

_ANOTHER_RUN = """\
{folder} holds another run, at step {step}:
{differences}
Training could not continue at the same place in the data. Give the old values, or another --model_dir."""

_OTHER_DATA = """\
{folder} holds a run, at step {step}, and its data have changed since:
{differences}
Nothing was started or changed. Restore the old data, give another --model_dir, or continue from the same place in
the new data with --allow_changed_data."""

_OTHER_MODEL = """\
{folder} holds a run of another model or optimizer. Nothing was started or changed. Give the old values; choose another
--model_dir, where Training.initial_checkpoint = "{folder}" takes over weights; or start again with --from_scratch,
which moves the old run into a subfolder."""

_INSTEAD = """\
Nothing was started or changed. Restore a checkpoint from a copy, or start again with --from_scratch, which moves the
old run into a subfolder."""

_UNREADABLE = """\
{fault}: a checkpoint in {folder} cannot be read. It may still be intact.
Nothing was started or changed. Make it readable (permissions, the disk), or start again with
--from_scratch, which moves the old run into a subfolder."""

_LOST = """\
{folder} holds a run that ended after step {step}, and its checkpoints are gone: {checkpoints} has none.
Nothing was started or changed. Restore them, give another --model_dir, or start again with --from_scratch, which
moves the old run into a subfolder."""

_NO_POSITION = """\
the checkpoint {folder} does not say where its training stopped in the data, so it was not saved by meshtf-train.
Give another --model_dir; Training.initial_checkpoint = "{folder}" takes weights from it."""


@dataclasses.dataclass(frozen=True)
class RunState:
    """The state that is saved along with the variables.

    Attributes:
      seed: the seed of the training.
      batch_size: the batch size of the training.
      task: the name of the task. A position in the data has a meaning only with the same seed, batch size and task.
      position: the position in the data.
      callbacks: the state that the run's callbacks remember.
      data: the fingerprint of the data, if the task has one.
    """

    seed: int
    batch_size: int
    task: str
    position: Position | None
    callbacks: dict[str, Any] | None = None
    data: Fingerprint | None = None

    @classmethod
    def of(cls, training: Training, position: Position | None, callbacks: dict[str, Any] | None = None) -> RunState:
        task = training.task
        return cls(training.seed, training.batch_size, task.name, position, callbacks, fingerprint_of(task))

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> RunState:
        return cls(**{field.name: state.get(field.name) for field in dataclasses.fields(cls)})  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Start:
    """The start of a run: the step before it, the position in the data, and the state of the callbacks."""

    step: int = 0
    position: Position | None = None
    callbacks: dict[str, Any] | None = None


def resumed_start(
    trainer: Trainer, folder: RunFolder, *, from_scratch: bool = False, allow_changed_data: bool = False
) -> Start:
    """Restores the newest complete checkpoint of a run, if there is one.

    Nothing in the folder changes until the position in the data and the model are known to fit. Then the files that a
    killed process left half written are removed.

    Args:
      trainer: the programs whose variables get their values.
      folder: the folder of the run. Nobody else trains in it.
      from_scratch: whether the run begins at step 0. An existing run is then set aside.
      allow_changed_data: whether the run may continue if its data have changed. A line then shows the change.

    Raises:
      ConfigurationError: if the checkpoint has another seed, batch size, task or data; or if a run was trained here and
        has no checkpoint.
      CheckpointError: if it is of another model or optimizer, or if all checkpoints are damaged.
      DeviceError: if the machine has too little memory.
      OSError: if a checkpoint cannot be read, or if no folder can be made for checkpoints.
    """
    checkpoints = folder.checkpoints()
    if from_scratch:
        _begin(trainer)
        if aside := folder.set_aside():
            print(f"from scratch:  the run that was here is now in {aside.place}")
        checkpoints.folder.mkdir(exist_ok=True)
        return Start()
    checkpoints.give_back_replaced()
    saved, start = _newest(folder), Start()
    if saved is not None:
        position = _resumed_position(trainer.training, saved, folder.place)
        position = _in_the_data_of_now(trainer.training, saved, folder.place, position, allow_changed_data)
        start = Start(saved.step, position, RunState.from_dict(saved.state).callbacks)
        trainer.batches(start.position)
        _restore(saved, trainer, folder)
    else:
        _begin(trainer)
    checkpoints.remove_unfinished()
    checkpoints.folder.mkdir(exist_ok=True)  # if the folder cannot be made, fail now and not after hours
    return start


def _restore(saved: SavedCheckpoint, trainer: Trainer, folder: RunFolder) -> None:
    try:
        restore(saved, trainer.programs)
    except OtherModelError as error:
        raise OtherModelError(error.difference, _OTHER_MODEL.format(folder=folder.place)) from None


def _begin(trainer: Trainer) -> None:
    """Restores the weights of an initial checkpoint, if there is one, and prints which tensors stay initial."""
    done = trainer.begin()
    if done is None:
        return
    initial = initial_checkpoint_of(trainer.training.initial_checkpoint)
    assert initial is not None
    model = {n for v in trainer.evaluation_step.graph.variables.values() for n in getattr(v, "saved_names", ())}
    anew = [name for name in done.initial if name in model]
    told = f"; anew: {', '.join(anew[:_MOST_NAMED])}{' ..' if len(anew) > _MOST_NAMED else ''}" if anew else ""
    print(f"begins with:   {counted(len(done.restored), 'tensor')} of {initial.path}{told}")


def _newest(folder: RunFolder) -> SavedCheckpoint | None:
    """Returns the checkpoint from which a run resumes, or None if it starts anew."""
    checkpoints = folder.checkpoints()
    try:
        if checkpoints.steps():
            return folder.checkpoint()
    except CheckpointError as error:
        raise CheckpointError(f"{error}\n{_INSTEAD}") from None
    except OSError as error:
        fault = f"{error.strerror}: {str(error.filename)!r}" if error.strerror else str(error)
        raise OSError(error.errno, _UNREADABLE.format(fault=fault, folder=checkpoints.shown)) from None
    lines = read_metrics(folder.metrics)
    ended = [line["step"] for line in lines if DIGEST in line]
    if ended:
        raise ConfigurationError(_LOST.format(folder=folder.place, step=max(ended), checkpoints=checkpoints.shown))
    if lines:
        last = max(line["step"] for line in lines)
        print(f"begins again:  {folder.place} has metrics up to step {last}, but no checkpoint")
    return None


def _resumed_position(training: Training, saved: SavedCheckpoint, folder: Path | RemoteFolder) -> Position:
    """Returns the position where the data continue after a checkpoint of this training."""
    state = RunState.from_dict(saved.state)
    if not isinstance(state.position, dict):
        raise ConfigurationError(_NO_POSITION.format(folder=saved.place))
    own = {"seed": training.seed, "batch_size": training.batch_size, "task": training.task.name}
    changes = [
        f"  Training.{name} was {getattr(state, name)!r} and is {value!r}"
        for name, value in own.items()
        if getattr(state, name) != value
    ]
    if changes:
        raise ConfigurationError(_ANOTHER_RUN.format(folder=folder, step=saved.step, differences="\n".join(changes)))
    return state.position


def _in_the_data_of_now(
    training: Training, saved: SavedCheckpoint, folder: Path | RemoteFolder, position: Position, is_allowed: bool
) -> Position:
    """Returns the position in the present data. Raises ConfigurationError if they changed and must not."""
    found = differences(RunState.from_dict(saved.state).data, fingerprint_of(training.task))
    lines = "\n".join(f"  {line}" for line in found)
    if found and not is_allowed:
        raise ConfigurationError(_OTHER_DATA.format(folder=folder, step=saved.step, differences=lines))
    if found:
        print(f"changed data:  since the checkpoint of step {saved.step}\n{lines}")
    return in_changed_data(position, training.task) if is_allowed else position


def changed_bindings(before: str, now: str) -> list[str]:
    """Lists the differences of two gin configurations: `name: old -> new`, for each binding that is not the same
    in both.
    """
    old, new = bindings_of(before), bindings_of(now)
    return [
        f"{name}: {old.get(name, '(not there)')} -> {new.get(name, '(not there)')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def bindings_of(text: str) -> dict[str, str]:
    """Returns the bindings of an operative configuration, by name. A long value is continued on indented lines."""
    joined = re.sub(r"\\?\n[ \t]+", " ", text)
    pairs = [line.partition(" = ") for line in joined.splitlines() if not line.startswith("#") and " = " in line]
    return {name.strip(): " ".join(value.split()) for name, _, value in pairs}
