"""The best checkpoint beside the newest ones, in a training that ends when it gets no better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.train import Training
from meshtf.train.callbacks import BestCheckpoint, EarlyStopping
from meshtf.train.monitoring.metrics import digest_of
from tests.train.test_loop import Run, run

Make = Callable[..., Training]


def states(ended: Run) -> dict[str, dict[str, object]]:
    newest = ended.folder.checkpoints().newest_readable()
    assert newest is not None
    return newest.state["callbacks"]["states"]


def test_the_best_is_kept_by_each_metric_and_the_end_comes_alike_undisturbed_and_resumed(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss gets less: the first is kept, of the others the last, and four worse ones end the run."""
    best_ones = [BestCheckpoint("loss", "max"), BestCheckpoint("loss", "min")]
    training = tiny_training(
        evaluate_every=1, keep_checkpoints=1, callbacks=[*best_ones, EarlyStopping("loss", "max", 4)]
    )
    whole = run(training, tmp_path / "whole")
    losses = whole.held_out
    greatest = max(losses, key=lambda step: losses[step])
    least = min(losses, key=lambda step: losses[step])
    assert whole.folder.checkpoints().steps() == [greatest, least] == [1, 5]
    assert (whole.trainer.training.num_steps, max(whole.losses), max(whole.held_out)) == (8, 5, 5)
    assert whole.lines[-1]["variables_sha256"] == digest_of(whole.trainer.variables)
    assert {name: state for name, state in states(whole).items() if name != "EarlyStopping"} == {
        "BestCheckpoint": {"metric": "loss", "mode": "max", "best": losses[greatest], "best_step": greatest},
        "BestCheckpoint/2": {"metric": "loss", "mode": "min", "best": losses[least], "best_step": least},
    }
    told = capsys.readouterr().out
    assert f"best:          held-out loss {losses[greatest]:.4f}, --step={greatest}\n" in told
    reason = f"held-out loss was {losses[1]:.4f} after step 1, and no better in 4 evaluations in a row"
    assert f"step 5: stopping early: {reason}" in told

    trainer = run(training, tmp_path / "parts", stop_after=3).trainer
    resumed = run(training, tmp_path / "parts", trainer=trainer)
    assert (resumed.start.step, resumed.losses, resumed.held_out) == (3, whole.losses, whole.held_out)
    assert resumed.folder.checkpoints().steps() == whole.folder.checkpoints().steps()
    assert states(resumed) == states(whole)
    assert digest_of(resumed.trainer.variables) == digest_of(whole.trainer.variables)

    capsys.readouterr()
    again = run(training, tmp_path / "parts", trainer=trainer)
    assert (again.evaluation, again.lines) == (resumed.evaluation, resumed.lines)
    assert reason in capsys.readouterr().out


def test_the_best_may_be_older_than_the_last_checkpoint_which_does_not_know_the_last_evaluation(
    tiny_training: Make, tmp_path: Path
) -> None:
    ended = run(
        tiny_training(num_steps=3, evaluate_every=1, keep_checkpoints=1, callbacks=[BestCheckpoint()]), tmp_path / "run"
    )
    assert min(ended.held_out, key=lambda step: ended.held_out[step]) == 3
    assert ended.folder.checkpoints().steps() == [2, 3]
    best = {"metric": "loss", "mode": "min", "best": ended.held_out[2], "best_step": 2}
    assert states(ended) == {"BestCheckpoint": best}
