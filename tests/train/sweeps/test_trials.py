"""The trials of a grid and of samples."""

from __future__ import annotations

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_results import TrialResult, results_table
from meshtf.train.sweeps.trials import Trial, first_values, grid, numbered, samples

SWEEP = Sweep(
    choices={"a.x": [1, 2, "word"]}, ranges={"a.whole": (3, 5), "a.real": (0.0, 1.0)}, log_ranges={"a.log": (1e-4, 1.0)}
)


def test_a_grid_has_every_combination_once() -> None:
    found = grid(Sweep(choices={"a.x": [1, 2, 1], "a.y": ["s", (8,)]}))
    assert [tuple(each.values()) for each in found] == [("1", "'s'"), ("1", "(8,)"), ("2", "'s'"), ("2", "(8,)")]
    with pytest.raises(ConfigurationError, match=r"a\.whole has a range, and a grid needs a list"):
        grid(SWEEP)


def test_samples_are_in_their_ranges_and_more_of_them_add_to_fewer() -> None:
    found = samples(SWEEP, 200, seed=3)
    assert found[:50] == samples(SWEEP, 50, seed=3)
    assert found != samples(SWEEP, 200, seed=4)
    assert {each["a.whole"] for each in found} == {"3", "4", "5"}
    assert {each["a.x"] for each in found} == {"1", "2", "'word'"}
    logs = [float(each["a.log"]) for each in found]
    assert min(logs) >= 1e-4
    assert max(logs) <= 1.0
    # Half of the logarithms lie below 1e-2, with a standard deviation of 7 of 200. Of plain numbers 1 % would.
    assert 60 < sum(log < 1e-2 for log in logs) < 140


def test_samples_of_a_narrow_range_differ() -> None:
    found = samples(Sweep(ranges={"AdamWOptimizer.beta2": [0.9999, 0.99999]}), 20, seed=0)
    assert len(found) == 20


def test_each_value_is_checked_once() -> None:
    assert [each["a.x"] for each in first_values(SWEEP)] == ["1", "2", "'word'"]
    assert first_values(SWEEP)[0] == {"a.x": "1", "a.whole": "3", "a.real": "0.0", "a.log": "0.0001"}


def test_trials_of_earlier_commands_keep_their_numbers() -> None:
    before = numbered([{"a.x": "1"}, {"a.x": "2"}])
    now = numbered([{"a.x": "0"}, {"a.x": "2"}], before)
    assert [(trial.name, trial.bindings) for trial in now] == [("trial_002", ["a.x = 0"]), ("trial_001", ["a.x = 2"])]


def test_a_best_value_before_training_has_its_step() -> None:
    first = TrialResult(Trial(0, {"a.b": "1"}), "done", [0, 1], [2.0, 3.0], best=2.0, best_step=0)
    table = results_table(Sweep(choices={"a.b": [1]}), [first])
    assert {column.header: [*column.cells] for column in table.columns}["at step"] == ["0"]
