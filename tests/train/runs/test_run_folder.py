"""What is written beside the checkpoints, and how another program takes up what was trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, DamagedCheckpointError
from meshtf.train import RunFolder, Start, Trainer, Training, TrainingRun
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.description import described, one_line
from meshtf.train.runs import run_folder
from meshtf.train.runs.signals import StopRequest
from meshtf.train.step_programs import evaluation_step
from meshtf.train.trainer import mesh_of

Make = Callable[..., Training]


def test_another_program_takes_up_what_was_trained(tiny_training: Make, tmp_path: Path) -> None:
    training, folder = tiny_training(num_steps=2, checkpoint_every_steps=1), RunFolder(tmp_path)
    trainer = Trainer(training)
    TrainingRun(trainer, folder, Start(), StopRequest()).run()
    program = evaluation_step(training, mesh_of(training))
    assert folder.restore(program) == 2
    np.testing.assert_array_equal(program.variables["out/kernel"], trainer.variables["out/kernel"])
    assert not [name for name in program.variables if "adam" in name]
    assert folder.restore(evaluation_step(training, mesh_of(training)), step=1) == 1
    with pytest.raises(CheckpointError, match="has no checkpoint of step 7; there are: 1, 2"):
        folder.restore(program, step=7)
    events = b"".join(path.read_bytes() for path in folder.tensorboard.iterdir())
    assert b"examples_per_second" in events
    assert b"held_out_absolute" in events


def test_a_checkpoint_that_a_training_deletes_meanwhile_gives_way_to_another(
    tiny_training: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, folder = tiny_training(), RunFolder(tmp_path)
    program = evaluation_step(training, mesh_of(training))
    program.initialize()
    for step in (1, 2, 3):
        folder.checkpoints().save(step, program.variables, {})
    real_restore, deletions = run_folder.restore, iter([folder.checkpoints().path(3)])

    def restore_late(saved: SavedCheckpoint, *rest: Any, **options: Any) -> None:
        for path in deletions:
            shutil.rmtree(path)
        real_restore(saved, *rest, **options)

    monkeypatch.setattr(run_folder, "restore", restore_late)
    assert folder.restore(program) == 2
    (folder.checkpoints().path(2) / "variables.index").unlink()
    assert folder.restore(program) == 1
    with pytest.raises(DamagedCheckpointError, match=r"step_00000002 is damaged: variables.index"):
        folder.restore(program, step=2)


def test_a_folder_that_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is not the folder of a run: it has no operative_config.gin"):
        RunFolder.existing(tmp_path)
    with pytest.raises(ConfigurationError, match="run: there is no such folder"):
        RunFolder.existing(tmp_path / "gone")
    (tmp_path / "operative_config.gin").touch()
    with pytest.raises(ConfigurationError, match="has no checkpoint; meshtf-train writes one"):
        RunFolder.existing(tmp_path).checkpoint()


def test_one_training_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with folder.lock(), pytest.raises(ConfigurationError, match=f"another training is running in {tmp_path}"):
        folder.lock()
    folder.lock().close()


def test_versions_say_on_what_it_ran(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_versions()
    versions = json.loads(RunFolder(tmp_path).versions.read_text())
    assert versions["tensorflow"] == tf.__version__
    assert set(versions) == {"meshtf", "tensorflow", "numpy", "python", "platform", "command"}


def test_what_will_run_is_one_line(tiny_training: Make) -> None:
    trainer = Trainer(tiny_training())
    line = one_line(trainer.training, trainer.train_step)
    assert line.startswith("TinyModel on tiny: 49 parameters, mesh [rows:2] (2 cores), layout [batch:rows], ")
    assert line.endswith(" per core, 8 examples a step, 8 steps")
    assert "\n" not in line
    assert "hidden/kernel  [d_model:4 hidden:8] float32" in described(trainer.training, trainer.train_step)
