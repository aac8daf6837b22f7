"""What a run goes on from: it is found, or refused with nothing changed, and never begun again in silence."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import CheckpointError
from meshtf.train import RunFolder, Start, Trainer, Training, TrainingRun
from meshtf.train.configuration import OPERATIVE_CONFIG, ConfigurationError
from meshtf.train.data import ArrayTask
from meshtf.train.monitoring.metrics import read_metrics
from meshtf.train.runs.resuming import resumed_start
from meshtf.train.runs.signals import StopRequest
from tests.train.conftest import NUM_TRAIN, TinyModel, tiny_features, tiny_task

NEWEST = "checkpoints/step_00000003"
STATE = {"seed": 0, "batch_size": 8, "task": "tiny", "position": {"examples_taken": 24, "num_examples": NUM_TRAIN}}


@dataclasses.dataclass(frozen=True)
class Ended:
    """A run of three steps with a checkpoint after each, and a trainer of it."""

    trainer: Trainer
    path: Path

    def copy(self, path: Path) -> RunFolder:
        shutil.copytree(self.path, path, symlinks=True)
        return RunFolder(path)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    training = Training(
        TinyModel(),
        tiny_task(),
        mtf.optimize.SgdOptimizer(0.01),
        "cores:1",
        "",
        batch_size=8,
        num_steps=3,
        log_every=1,
        evaluate_every=3,
        checkpoint_every_steps=1,
    )
    folder = RunFolder(tmp_path_factory.mktemp("ended"))
    folder.operative_config.write_text("Training.num_steps = 3\n")
    trainer = Trainer(training)
    TrainingRun(trainer, folder, resumed_start(trainer, folder), StopRequest(), []).run()
    return Ended(trainer, folder.path)


def content(folder: Path) -> dict[str, Any]:
    """Everything under a folder, but the lock."""
    paths = [path for path in folder.rglob("*") if path.name != ".lock"]
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None for p in paths}


def cut(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names or [str(p.relative_to(folder)) for p in folder.glob("checkpoints/step_*/manifest.json")]:
            (folder / name).write_bytes((folder / name).read_bytes()[:-9])

    return damage


def remove(name: str) -> Callable[[Path], None]:
    def gone(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return gone


def without_end(folder: Path) -> None:
    """As if killed before its first checkpoint."""
    remove("checkpoints")(folder)
    metrics = RunFolder(folder).metrics
    metrics.write_text("".join(line for line in metrics.read_text().splitlines(True) if "sha256" not in line))


def half_replaced(folder: Path) -> None:
    """As if killed while the newest was being replaced, after a save and a deletion that were cut short."""
    newest = folder / NEWEST
    newest.rename(newest.with_name(f".replaced-{newest.name}"))
    for name in (".writing-step_00000003", ".deleting-step_00000001"):
        (folder / "checkpoints" / name).mkdir()


def strange_neighbours(folder: Path) -> None:
    for name in ("step_9", "step_0000000009", "step_00000009.old", "step_0000000x", "step_٠٠٠٠٠٠٠٩", ".step_00000009"):
        (folder / "checkpoints" / name).mkdir()
    (folder / "checkpoints" / "notes.txt").write_text("mine")


def file_in_place(folder: Path) -> None:
    remove(NEWEST)(folder)
    (folder / NEWEST).write_text("no folder")


@pytest.mark.parametrize(
    ("change", "step"),
    [
        (lambda folder: None, 3),
        (cut(f"{NEWEST}/manifest.json"), 2),
        (cut(f"{NEWEST}/variables.index"), 2),
        (cut(f"{NEWEST}/manifest.json", "checkpoints/step_00000002/variables.data-00000-of-00001"), 1),
        (remove(f"{NEWEST}/manifest.json"), 2),
        (remove(f"{NEWEST}/variables.index"), 2),
        (remove(NEWEST), 2),
        (remove("metrics.jsonl"), 3),
        (file_in_place, 2),
        (half_replaced, 3),
        (strange_neighbours, 3),
        (without_end, 0),
    ],
)
def test_a_run_goes_on_from_the_newest_whole_checkpoint(
    ended: Ended, tmp_path: Path, change: Callable[[Path], None], step: int
) -> None:
    folder = ended.copy(tmp_path / "run")
    change(folder.path)
    start = resumed_start(ended.trainer, folder)
    position = {"examples_taken": 8 * step, "num_examples": NUM_TRAIN} if step else None
    assert start == Start(step, position)
    assert not list(folder.path.glob("checkpoints/.[wrd]*"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            cut(),
            CheckpointError,
            "none of the checkpoints in {folder}/checkpoints can be read: the ones of the steps 1, 2, 3",
        ),
        (cut(), CheckpointError, "or start again with --from_scratch, which moves"),
        (
            remove("checkpoints"),
            ConfigurationError,
            "{folder} holds a run that ended after step 3, and its checkpoints are",
        ),
    ],
)
def test_what_cannot_go_on_is_refused_and_left_as_it_is(
    ended: Ended, tmp_path: Path, change: Callable[[Path], None], error: type, message: str
) -> None:
    folder = ended.copy(tmp_path / "run")
    change(folder.path)
    before = content(folder.path)
    with pytest.raises(error) as caught:
        resumed_start(ended.trainer, folder)
    assert message.format(folder=folder.path) in str(caught.value)
    assert "Nothing was started or changed." in str(caught.value)
    assert content(folder.path) == before


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({**STATE, "seed": 1}, "Training.seed was 1 and is 0"),
        ({**STATE, "seed": "0"}, "Training.seed was '0' and is 0"),
        ({**STATE, "batch_size": 16}, "Training.batch_size was 16 and is 8"),
        ({**STATE, "task": "small"}, "Training.task was 'small' and is 'tiny'"),
        ({}, "does not say where its training stopped in the data"),  # of meshtf-quantize, or an import
        ({**STATE, "position": None}, "does not say where its training stopped in the data"),
        ({**STATE, "position": [24, 40]}, "does not say where its training stopped in the data"),
        ({**STATE, "position": "24"}, "does not say where its training stopped in the data"),
        ({**STATE, "position": {}}, "{{}} is no position in the data"),
        ({**STATE, "position": {"examples_taken": -8, "num_examples": NUM_TRAIN}}, "the first 0 or more"),
        ({**STATE, "position": {"examples_taken": 8.5, "num_examples": NUM_TRAIN}}, "is no position in the data"),
        ({**STATE, "position": {"examples_taken": 24}}, "is no position in the data"),
        (
            {**STATE, "position": {"examples_taken": 24, "num_examples": 41}},
            "a place in 41 examples, and the data have 40 now",
        ),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_left_as_it_is(
    ended: Ended, tmp_path: Path, state: dict[str, Any], message: str
) -> None:
    folder = ended.copy(tmp_path / "run")
    folder.checkpoints(keep=None).save(4, ended.trainer.variables, state)
    (folder.path / "checkpoints" / ".writing-step_00000005").mkdir()
    before = content(folder.path)
    with pytest.raises(ConfigurationError) as caught:
        resumed_start(ended.trainer, folder)
    assert message.replace("{{}}", "{}") in str(caught.value)
    assert content(folder.path) == before


def with_data(trainer: Trainer, train: dict[str, np.ndarray]) -> Trainer:
    """The trainer with other examples to train on."""
    task = trainer.training.task
    assert isinstance(task, ArrayTask)
    training = dataclasses.replace(trainer.training, task=dataclasses.replace(task, train=train))
    return Trainer(training, trainer.mesh_impl)


def test_other_data_are_refused_and_left_as_they_are(
    ended: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ended.copy(tmp_path / "run")
    before = content(folder.path)
    features = tiny_features(NUM_TRAIN, 0)
    turned = with_data(ended.trainer, {name: array[::-1] for name, array in features.items()})
    more = with_data(ended.trainer, {name: np.concatenate([x, x[:3]]) for name, x in features.items()})
    for trainer, told in ((turned, "in another order"), (more, "40 examples then, 43 now")):
        with pytest.raises(ConfigurationError) as caught:
            resumed_start(trainer, folder)
        message = str(caught.value)
        assert message.startswith(
            f"{folder.path} holds a run, at step 3, and its data have changed since:\n  examples to"
        )
        assert told in message
        assert "Nothing was started or changed. " in message
        assert message.endswith("with --allow_changed_data.")
        assert content(folder.path) == before
        start = resumed_start(trainer, folder, allow_changed_data=True)
        count = 43 if trainer is more else NUM_TRAIN
        assert start == Start(3, {"examples_taken": 24, "num_examples": count})
        out = capsys.readouterr().out
        assert out.startswith("changed data:  since the checkpoint of step 3\n  examples to train on: ")
        assert told in out


def test_a_checkpoint_from_before_data_were_known_again(ended: Ended, tmp_path: Path) -> None:
    folder = ended.copy(tmp_path / "run")
    folder.checkpoints(keep=None).save(4, ended.trainer.variables, STATE)
    assert resumed_start(ended.trainer, folder).step == 4
    assert resumed_start(ended.trainer, folder, allow_changed_data=True).step == 4


@contextlib.contextmanager
def unprivileged_folder() -> Iterator[Path]:
    """A folder in which this process has no more rights than its owner; root has all otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
        for path in Path(folder).rglob("*"):
            path.chmod(0o700)


@contextlib.contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, nobody, nobody)
    os.seteuid(nobody)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", [NEWEST, f"{NEWEST}/manifest.json", f"{NEWEST}/variables.index", "checkpoints"])
def test_what_may_not_be_read_is_not_damaged(ended: Ended, name: str) -> None:
    with unprivileged_folder() as parent:
        folder = ended.copy(parent / "run")
        before = content(folder.path)
        (folder.path / name).chmod(0)
        with as_owner_of(parent), pytest.raises(PermissionError) as caught:
            resumed_start(ended.trainer, folder)
        assert "cannot be read. It may still be intact" in str(caught.value)
        assert str(caught.value).count("[Errno ") == 1
        assert "start again with\n--from_scratch" in str(caught.value)
        (folder.path / name).chmod(0o700)
        assert content(folder.path) == before


def test_data_that_may_not_be_read_is_not_damaged(ended: Ended) -> None:
    """TensorFlow reads it."""
    with unprivileged_folder() as parent:
        folder = ended.copy(parent / "run")
        (folder.path / NEWEST / "variables.data-00000-of-00001").chmod(0)
        with as_owner_of(parent), pytest.raises(OSError, match="It may still be intact"):
            resumed_start(ended.trainer, folder)


def test_from_scratch_keeps_what_was_there_as_a_run_of_its_own(
    ended: Ended, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ended.copy(tmp_path / "run")
    (folder.path / "notes.txt").write_text("mine")
    (folder.path / "samples.jsonl").write_text('{"step": 3, "prompt": "a", "text": "b"}\n')
    cut()(folder.path)
    before = content(folder.path)
    assert resumed_start(ended.trainer, folder, from_scratch=True) == Start()
    assert f"the run that was here is now in {folder.path}/superseded_1" in capsys.readouterr().out
    assert content(folder.path / "superseded_1") == {n: b for n, b in before.items() if n != "notes.txt"}
    assert RunFolder.existing(folder.path / "superseded_1").checkpoints().steps() == [1, 2, 3]
    assert {path.name for path in folder.path.iterdir()} == {"notes.txt", "superseded_1", "checkpoints"}
    folder.operative_config.touch()
    resumed_start(ended.trainer, folder, from_scratch=True)
    assert (folder.path / "superseded_2" / OPERATIVE_CONFIG).exists()
    assert resumed_start(ended.trainer, RunFolder(tmp_path), from_scratch=True) == Start()


def test_from_scratch_only_the_first_process_moves_the_checkpoints(ended: Ended, tmp_path: Path) -> None:
    """The folder of each other one is often on another disk, as a temporary one."""
    folder = ended.copy(tmp_path / "run")
    assert resumed_start(ended.trainer, folder, from_scratch=True) == Start()
    (tmp_path / "own").mkdir()
    own = RunFolder(tmp_path / "own", folder.checkpoints().folder)
    own.metrics.write_bytes((folder.path / "superseded_1" / "metrics.jsonl").read_bytes())
    before = folder.checkpoints().folder.stat().st_ino
    assert resumed_start(ended.trainer, own, from_scratch=True) == Start()
    assert folder.checkpoints().folder.stat().st_ino == before
    assert sorted(content(own.path)) == ["superseded_1", "superseded_1/metrics.jsonl"]


@pytest.mark.parametrize("stands", ["a file", "a dangling link"])
def test_what_stands_in_the_place_of_the_checkpoints_is_found_at_the_start(
    ended: Ended, tmp_path: Path, stands: str
) -> None:
    place = tmp_path / "checkpoints"
    place.touch() if stands == "a file" else place.symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        resumed_start(ended.trainer, RunFolder(tmp_path))


@pytest.mark.parametrize("lost", [("sha256",), ("sha256", "held_out"), ("sha256", "held_out", '"step": 3')])
def test_a_run_killed_after_its_last_checkpoint_writes_what_an_undisturbed_one_writes(
    ended: Ended, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """Its number of steps is a multiple of evaluate_every. The line of a step is lost where its checkpoint is, too."""
    folder = ended.copy(tmp_path / "run")
    if len(lost) == 3:
        remove(NEWEST)(folder.path)
    kept = [line for line in folder.metrics.read_text().splitlines(True) if not any(part in line for part in lost)]
    folder.metrics.write_text("".join(kept))
    TrainingRun(ended.trainer, folder, resumed_start(ended.trainer, folder), StopRequest(), []).run()

    def measured(path: Path) -> list[str]:
        lines = read_metrics(RunFolder(path).metrics)
        return [
            json.dumps(
                {n: v for n, v in line.items() if n not in ("time", "examples_per_second", "evaluation_seconds")}
            )
            for line in lines
        ]

    assert measured(folder.path) == measured(ended.path)
