"""A rehearsal leaves nothing behind, and finds what a training of hours would end with."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import meshtf as mtf
from meshtf.errors import CheckpointError
from meshtf.train import Callback, Run, StepReport, Trainer, Training
from meshtf.train.callback import CallbackError
from meshtf.train.callbacks import BestCheckpoint, EarlyStopping
from meshtf.train.dry_run import dry_run
from meshtf.train.runs.signals import StopRequest

Make = Callable[..., Training]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, in which there are only those that TensorFlow removes as the process ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("__autograph_generated_file")] == []


class Watches(Callback):
    is_observer = True

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        raise AssertionError("a dry run has no observers")


class Breaks(Callback):
    def on_step(self, run: Run, report: StepReport) -> None:
        raise ValueError(f"at step {run.step}")


def test_it_says_what_it_did(tiny_training: Make, temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callbacks = [EarlyStopping(patience=1), BestCheckpoint(), Watches()]
    trainer = Trainer(tiny_training(num_steps=10**6, evaluate_every=1000, callbacks=callbacks))
    found = dry_run(trainer, StopRequest())
    assert found is not None
    assert found.held_out.endswith("(on 8 held-out examples)")  # one batch of the eleven
    assert found.checkpoint_bytes > 49 * 3 * 4  # 49 weights, and two moments of each
    assert found.planned_bytes == trainer.train_step.report().memory.peak
    assert found.process_bytes > 2**26
    text = str(found)
    for words in ("a batch", "an evaluation", "a checkpoint", "the same bits", "memory", " per core as planned"):
        assert words in text
    assert "step 2/2  loss " in capsys.readouterr().out


def test_a_callback_that_fails_is_found(tiny_training: Make) -> None:
    with pytest.raises(CallbackError, match="callback Breaks failed in on_step after step 1: ValueError: at step 1"):
        dry_run(Trainer(tiny_training(callbacks=[Breaks()])), StopRequest())


def test_what_no_checkpoint_has_is_found(tiny_training: Make) -> None:
    """A task whose batches are not a function of the position."""
    training = tiny_training()

    class Task:
        def __getattr__(self, name: str) -> Any:
            return getattr(training.task, name)

        def training_batches(self, batch_size: int, seed: int, position: Any = None) -> Any:
            return training.task.training_batches(batch_size, seed)

    with pytest.raises(CheckpointError, match="a step that was repeated from its checkpoint gave other bits"):
        dry_run(Trainer(tiny_training(task=Task(), optimizer=mtf.optimize.SgdOptimizer(0.1))), StopRequest())


def test_it_can_be_stopped(tiny_training: Make) -> None:
    stop = StopRequest()
    stop.signal = signal.SIGTERM
    assert dry_run(Trainer(tiny_training()), stop) is None
