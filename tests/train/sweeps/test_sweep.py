"""The choices of a sweep, and mistakes in them."""

from __future__ import annotations

from typing import Any

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.sweeps.sweep import Sweep

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "the sweep has nothing to choose"),
    ({"choices": {"a.b": []}}, 'Sweep.choices["a.b"] must be a list of one value or more, and is []'),
    ({"choices": {"a.b": 3}}, "must be a list of one value or more, and is 3"),
    ({"choices": {"a.b": [1]}, "ranges": {"a.b": (0, 1)}}, "gives a.b twice"),
    ({"ranges": {"a.b": (1.0, 1.0)}}, 'Sweep.ranges["a.b"] is empty: 1.0 is not less than 1.0'),
    ({"ranges": {"a.b": (1.0,)}}, "must be two numbers, the least and the greatest, and is (1.0,)"),
    ({"log_ranges": {"a.b": (0.0, 1.0)}}, "must be above 0, to be drawn on a log scale, and begins at 0.0"),
    ({"choices": {"a.b": [1]}, "mode": "least"}, 'Sweep.mode must be "min" or "max"'),
    ({"choices": {"a.b": [1]}, "stop_early": "mean"}, 'must be "median", "halving" or None'),
    ({"choices": {"a.b": [1]}, "warm_up_steps": -1}, "must be integers, 0 or more, and are -1 and 4"),
    ({"choices": {"a.b": [1]}, "start_up_trials": 2.5}, "must be integers, 0 or more, and are 0 and 2.5"),
    ({"choices": {"a.b": [1]}, "metric": 5}, "Sweep.metric must be the name of a metric, and is 5"),
    ({"choices": 4}, "Sweep.choices must be a dict with names of bindings, and is 4"),
    ({"ranges": {4: (0, 1)}}, "Sweep.ranges must be a dict with names of bindings, and is {4: (0, 1)}"),
    (
        {"log_ranges": {"a.b": (float("nan"), 1.0)}},
        "must be two numbers, the least and the greatest, and is (nan, 1.0)",
    ),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_mistakes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Sweep(**given)
    assert message in str(raised.value)


def test_the_mode_says_which_is_better() -> None:
    least, greatest = Sweep(choices={"a.b": [1]}), Sweep(choices={"a.b": [1]}, mode="max")
    assert (least.best([2.0, 1.0]), greatest.best([2.0, 1.0])) == (1.0, 2.0)
    assert least.is_better(1.0, 2.0)
    assert not greatest.is_better(1.0, 2.0)
