"""Ending a training that gets no better, stopped and resumed or not. test_best_checkpoint.py has a shorter one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshtf.train import Training
from meshtf.train.callbacks import EarlyStopping
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.metrics import digest_of
from tests.train.test_loop import run

Make = Callable[..., Training]


def patient(tiny_training: Make, patience: int) -> Training:
    """The greatest loss is the best here, so that of the first evaluation."""
    return tiny_training(evaluate_every=1, callbacks=[EarlyStopping("loss", "max", patience)])


@pytest.mark.long
def test_it_goes_on_with_more_patience(tiny_training: Make, tmp_path: Path) -> None:
    run(patient(tiny_training, 2), tmp_path / "parts")
    longer, undisturbed = (run(patient(tiny_training, 4), tmp_path / name) for name in ("parts", "longer"))
    assert (longer.losses, longer.held_out) == (undisturbed.losses, undisturbed.held_out)
    assert max(longer.losses) == 5


@pytest.mark.long
def test_it_ends_alike_undisturbed_and_resumed(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After two evaluations that are worse than the first."""
    whole = run(patient(tiny_training, 2), tmp_path / "whole")
    best = whole.held_out[1]
    reason = (
        f"step 3: stopping early: held-out loss was {best:.4f} after step 1, and no better in 2 evaluations in a row"
    )
    assert reason in capsys.readouterr().out
    assert (whole.trainer.training.num_steps, max(whole.losses), max(whole.held_out)) == (8, 3, 3)
    assert whole.lines[-1]["variables_sha256"] == digest_of(whole.trainer.variables)
    assert whole.folder.checkpoints().steps() == [3]

    run(patient(tiny_training, 2), tmp_path / "parts", stop_after=2)
    resumed = run(patient(tiny_training, 2), tmp_path / "parts")
    assert (resumed.start.step, resumed.losses, resumed.held_out) == (2, whole.losses, whole.held_out)
    assert digest_of(resumed.trainer.variables) == digest_of(whole.trainer.variables)

    capsys.readouterr()
    again = run(patient(tiny_training, 2), tmp_path / "parts")
    assert again.evaluation == resumed.evaluation
    assert again.lines == resumed.lines
    assert reason in capsys.readouterr().out


@dataclasses.dataclass
class Noted:
    """What a run is told."""

    step: int = 0
    reasons: list[str] = dataclasses.field(default_factory=list)

    def stop(self, reason: str) -> None:
        self.reasons.append(reason)


def stopped_after(callback: EarlyStopping, losses: Sequence[float], state: Mapping[str, Any] | None = None) -> int:
    """The number of evaluations after which the callback stops a run."""
    run: Any = Noted()
    callback.on_start(run, state or {})
    for run.step, loss in enumerate(losses, 1):
        callback.on_evaluation(run, Evaluation(8, {"loss": loss, "absolute": loss}))
        if run.reasons:
            break
    return run.step


def test_what_is_better_by_too_little_does_not_count() -> None:
    by_half = EarlyStopping(patience=2, min_delta=0.5)
    assert stopped_after(by_half, [3.0, 2.4, 2.0, 1.9, 1.8]) == 4
    # Another metric begins anew: with the next evaluation, which is the best so far.
    other = EarlyStopping("absolute", patience=2, min_delta=0.5)
    assert stopped_after(other, [3.0, 2.9, 2.8], by_half.state_dict()) == 3
    assert stopped_after(EarlyStopping(patience=3, min_delta=0.5), [2.0, 1.8], by_half.state_dict()) == 1


def test_another_mode_begins_anew() -> None:
    """Else a run that ended at once, as an accuracy had the mode "min", would end again, whatever the mode is now."""
    wrong = EarlyStopping("absolute", "min", patience=2)
    assert stopped_after(wrong, [0.1, 0.2, 0.3]) == 3
    right = EarlyStopping("absolute", "max", patience=2)
    assert stopped_after(right, [0.4, 0.5, 0.4, 0.3], wrong.state_dict()) == 4
    of_earlier_version = {name: value for name, value in wrong.state_dict().items() if name != "mode"}
    assert stopped_after(EarlyStopping("absolute", patience=3), [0.2], of_earlier_version) == 1


@pytest.mark.long
def test_in_a_training_what_is_better_by_too_little_does_not_count(tiny_training: Make, tmp_path: Path) -> None:
    training = tiny_training(evaluate_every=1, callbacks=[EarlyStopping(patience=1, min_delta=1e6)])
    assert max(run(training, tmp_path).losses) == 2
    # Another metric begins anew: with the next evaluation, which is the best so far.
    other = dataclasses.replace(training, callbacks=[EarlyStopping("absolute", patience=2, min_delta=1e6)])
    assert max(run(other, tmp_path).losses) == 5
