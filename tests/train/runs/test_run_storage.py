"""A run on remote storage, in memory: taken up on another machine, set aside, and written by one training alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder
from meshtf.checkpoint.checkpoint_paths import find_folder
from meshtf.errors import SaveError
from meshtf.files.remote import failures
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.train import RunFolder, Trainer, Training, TrainingRun
from meshtf.train.configuration import ConfigurationError
from meshtf.train.initial_checkpoint import InitialCheckpoint
from meshtf.train.monitoring.metrics import DIGEST, read_metrics
from meshtf.train.runs.resuming import resumed_start
from meshtf.train.runs.signals import StopRequest
from tests.files.remote.tensors import check, save
from tests.train.conftest import TinyModel, tiny_task

URL = "memory://runs/mine"


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(
        Training(
            TinyModel(),
            tiny_task(),
            mtf.optimize.SgdOptimizer(0.01),
            "cores:1",
            "",
            batch_size=8,
            num_steps=3,
            log_every=1,
            checkpoint_every_steps=1,
        )
    )


def train(trainer: Trainer, working: Path, num_steps: int, *, from_scratch: bool = False) -> RunFolder:
    """Trains on a machine whose own files are in `working`, as the program does."""
    trainer.training = dataclasses.replace(trainer.training, num_steps=num_steps)
    folder = RunFolder.made(URL, working)
    with folder.lock():
        folder.fetch()
        start = resumed_start(trainer, folder, from_scratch=from_scratch)
        folder.operative_config.write_text("Training.num_steps = 3\n")
        with folder.writing():
            TrainingRun(trainer, folder, start, StopRequest(), []).run()
    return folder


def lines(folder: RunFolder) -> list[dict[str, object]]:
    """Of its metrics, without times."""
    kept = ("step", "loss", "held_out_loss", DIGEST)
    return [{k: v for k, v in line.items() if k in kept} for line in read_metrics(folder.metrics)]


def test_a_run_goes_on_elsewhere(trainer: Trainer, tmp_path: Path) -> None:
    remote = RemoteFolder.open(URL)
    train(trainer, tmp_path / "one", 3)
    there = remote.files()
    assert {"metrics.jsonl", "operative_config.gin", "checkpoints/step_00000003/manifest.json"} <= there.keys()
    assert [line["step"] for line in lines(RunFolder.existing(URL))][:3] == [1, 2, 3]

    # The machine is gone: another has nothing but what is there, and a line beyond the checkpoint counts for nothing.
    remote.write("metrics.jsonl", remote.read("metrics.jsonl") + b'{"step": 4, "loss": 77.0}\n')
    folder = train(trainer, tmp_path / "two", 5)
    resumed = lines(RunFolder.existing(URL))
    assert [line["step"] for line in resumed if "loss" in line] == [1, 2, 3, 4, 5]
    assert resumed[-1].keys() >= {DIGEST}
    assert RunFolder.existing(URL).checkpoint().step == 5
    assert folder.place == remote

    # A run from the beginning takes its place, and it is kept.
    train(trainer, tmp_path / "two", 1, from_scratch=True)
    assert RunFolder.existing(URL).checkpoints().steps() == [1]
    aside = RunFolder.existing(f"{URL}/superseded_1")
    assert lines(aside) == resumed
    assert aside.checkpoint().step == 5
    assert find_folder(RemoteFolder.open(f"{URL}/superseded_1")) is not None

    started = InitialCheckpoint(URL).restore(trainer.train_step, trainer.evaluation_step)
    assert started.restored

    # Two at a time: the one that began first ends at its next checkpoint.
    first, second = RunFolder.made(URL, tmp_path / "three"), RunFolder.made(URL, tmp_path / "four")
    assert first.storage is not None
    assert second.storage is not None
    first.storage.claim(first.path)
    with second.writing():
        second.metrics.write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")
        with pytest.raises(ConfigurationError, match=rf"another training also writes to {URL}: .*, process \d+, which"):
            first.send()


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"memory://nothing is not the folder of a run: it has no operative_"):
        RunFolder.existing("memory://nothing")
    folder = RunFolder.made("memory://nothing", tmp_path)
    with pytest.raises(ConfigurationError, match="memory://nothing has no checkpoint; meshtf-train writes one"):
        folder.checkpoint()
    with folder.lock(), pytest.raises(ConfigurationError, match="another training is running in memory://nothing"):
        RunFolder.made("memory://nothing", tmp_path).lock()


def test_what_is_new_is_sent_after_a_failure_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.made("memory://failed/run", tmp_path)
    remote = RemoteFolder.open("memory://failed/run")

    def fail(change: Callable[[], object]) -> None:
        with folder.writing():
            change()
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail(lambda: folder.metrics.write_text("{}\n"))
    assert remote.read("metrics.jsonl") == b"{}\n"
    with pytest.raises(ArithmeticError):
        fail(lambda: remote.write(".writer", b'{"claim": "another", "host": "h", "process": 1}'))
    assert "are not in memory://failed/run: another training also writes" in capsys.readouterr().out


def test_a_checkpoint_that_could_not_be_sent_goes_there_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(failures.time, "sleep", lambda seconds: None)
    url = "memory://unsent/run"
    remote = RemoteFolder.open(url)

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionResetError("reset by peer")

    def saved(machine: str, step: int) -> RunFolder:
        """As a training does that begins on a machine, and saves one checkpoint."""
        folder = RunFolder.made(url, tmp_path / machine)
        folder.fetch()
        with folder.writing():
            folder.metrics.write_text(f"{step}\n")
            save(folder.checkpoints(3), step)
        return folder

    def lost(machine: str, step: int) -> Path:
        with monkeypatch.context() as patch:
            patch.setattr(type(remote._storage), "put_file", refuse)
            with pytest.raises(
                SaveError, match=r"reset by peer\nA complete copy is in .* on this machine; the checkpoints in .* are"
            ):
                saved(machine, step)
        return RunFolder.made(url, tmp_path / machine).path

    def steps() -> list[int]:
        return RunFolder.existing(url).checkpoints().steps()

    remote.write("operative_config.gin", b"")
    saved("one", 2)
    here = lost("one", 3)
    assert steps() == [2]
    lost("one", 4)  # nothing is removed where it cannot be sent at the next start, either
    assert steps() == [2]
    RunFolder.made(url, tmp_path / "one").fetch()
    told = f"sent now:      the checkpoint of step 3, which an earlier process could not write to {url}"
    assert told in capsys.readouterr().out
    assert steps() == [2, 3]
    check(RunFolder.existing(url).checkpoints(), 3)
    assert remote.read("metrics.jsonl") == b"3\n"

    # Another machine goes on before this one does: what it has stands, and what is here is kept.
    lost("one", 4)
    saved("two", 4)
    there = remote.read("checkpoints/step_00000004/manifest.json")
    capsys.readouterr()
    saved("one", 5)
    told = capsys.readouterr().out
    assert f"the checkpoint of step 4, which an earlier process could not write to {url}: another training has" in told
    assert f"It is kept in {here / 'unsent_1'}" in told
    check(CheckpointFolder(here / "unsent_1"), 4)
    assert remote.read("checkpoints/step_00000004/manifest.json") == there
    saved("one", 6)
    assert "sent" not in capsys.readouterr().out
    assert not [name for name in remote.files() if "unsent" in name]

    # One that is damaged here is nothing to go on from.
    lost("one", 7)
    (here / "checkpoints" / "step_00000007" / "manifest.json").write_text("{}")
    saved("one", 8)
    assert "is damaged: manifest.json does not have" in capsys.readouterr().out
    assert (here / "unsent_2" / "step_00000007").is_dir()
    assert steps() == [5, 6, 8]
