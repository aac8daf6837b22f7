"""The best checkpoint beside the newest ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.train import Training
from meshtf.train.callbacks import BestCheckpoint
from meshtf.train.monitoring.metrics import digest_of
from tests.train.test_loop import Run, run

Make = Callable[..., Training]


def states(ended: Run) -> dict[str, dict[str, object]]:
    newest = ended.folder.checkpoints().newest_readable()
    assert newest is not None
    return newest.state["callbacks"]["states"]


def test_the_best_is_kept_by_each_metric_undisturbed_and_resumed(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the greatest loss that is the first, by the least the one before the last, since the loss gets less."""
    training = tiny_training(
        num_steps=6,
        evaluate_every=1,
        keep_checkpoints=1,
        callbacks=[BestCheckpoint("loss", "max"), BestCheckpoint("loss", "min")],
    )
    whole = run(training, tmp_path / "whole")
    losses = whole.held_out
    greatest = max(losses, key=lambda step: losses[step])
    least = min(list(losses)[:-1], key=lambda step: losses[step])  # what the last checkpoint knows of
    assert whole.folder.checkpoints().steps() == sorted({greatest, least, 6})
    assert states(whole) == {
        "BestCheckpoint": {"metric": "loss", "best": losses[greatest], "best_step": greatest},
        "BestCheckpoint/2": {"metric": "loss", "best": losses[least], "best_step": least},
    }
    assert f"best:          held-out loss {losses[greatest]:.4f}, --step={greatest}\n" in capsys.readouterr().out

    run(training, tmp_path / "parts", stop_after=3)
    resumed = run(training, tmp_path / "parts")
    assert resumed.folder.checkpoints().steps() == whole.folder.checkpoints().steps()
    assert states(resumed) == states(whole)
    assert digest_of(resumed.trainer.variables) == digest_of(whole.trainer.variables)
