"""Hopeless trials are found by optuna's rules."""

from __future__ import annotations

import sys

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.sweeps.early_stop import EarlyStop
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_folder import DONE, FAILED, STOPPED_EARLY

CHOICES = {"a.x": [1]}


@pytest.mark.parametrize(("mode", "sign"), [("min", 1.0), ("max", -1.0)])
def test_a_trial_worse_than_the_median_ends_after_the_warm_up(mode: str, sign: float) -> None:
    sweep = Sweep(choices=CHOICES, mode=mode, stop_early="median", warm_up_steps=2, start_up_trials=3)  # type: ignore[arg-type]
    rule = EarlyStop(sweep)
    bad, steps = [sign * 9.0] * 3, (1, 2, 3)
    first = rule.begin()
    assert not first.is_hopeless((steps, bad))  # there is nothing to compare with
    for value in (1.0, 2.0, 3.0):
        rule.add((steps, [sign * value] * 3), DONE)
    late = rule.begin()
    assert not late.is_hopeless(((1,), bad[:1]))
    assert late.is_hopeless(((1, 2), bad[:2]))
    assert not rule.begin().is_hopeless((steps, [sign * 1.5] * 3))


def test_a_continued_sweep_judges_as_one_that_was_not_interrupted() -> None:
    """Three trials ran side by side to their ends, and the third would not have if the others had ended before it."""
    sweep = Sweep(choices=CHOICES, stop_early="median", start_up_trials=1)
    values, steps, next_one = (9.0, 1.0, 9.0), (1, 2, 3), [6.0] * 3
    undisturbed, continued = EarlyStop(sweep), EarlyStop(sweep)
    trials = [undisturbed.begin() for _ in values]
    assert not any(trial.is_hopeless((steps, [value] * 3)) for trial, value in zip(trials, values, strict=True))
    for trial in trials:
        trial.end(DONE)
    for value in values:
        continued.add((steps, [value] * 3), DONE)
    assert [rule.begin().is_hopeless((steps, next_one)) for rule in (undisturbed, continued)] == [False, False]


@pytest.mark.parametrize("state", [STOPPED_EARLY, FAILED])
def test_a_trial_that_did_not_run_to_its_end_has_not_finished(state: str) -> None:
    rule = EarlyStop(Sweep(choices=CHOICES, stop_early="median", start_up_trials=1))
    rule.add(((1, 2), [1.0, 1.0]), state)
    assert not rule.begin().is_hopeless(((1, 2), [2.0, 2.0]))


def test_halving_lets_the_best_of_a_rung_go_on() -> None:
    rule = EarlyStop(Sweep(choices=CHOICES, stop_early="halving", warm_up_steps=1))
    for value in range(4):
        rule.add(((1,), [float(value)]), DONE)
    assert not rule.begin().is_hopeless(((1,), [-1.0]))
    assert rule.begin().is_hopeless(((1,), [9.0]))


def test_without_optuna_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r"needs optuna \(pip install 'meshtf\[sweep\]'\)"):
        EarlyStop(Sweep(choices=CHOICES, stop_early="median"))
