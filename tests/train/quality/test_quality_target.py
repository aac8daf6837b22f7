from __future__ import annotations

import math
from typing import Any

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluation
from meshtf.train.quality import QualityTarget


def test_more_or_less_may_be_better() -> None:
    most, least = QualityTarget("a", "accuracy", 0.9), QualityTarget("a", "loss", 0.5, "min")
    assert [most.is_reached_by(x) for x in (0.89, 0.9, 1.0, math.nan)] == [False, True, True, False]
    assert [least.is_reached_by(x) for x in (0.51, 0.5, 0.1, math.nan)] == [False, True, True, False]
    assert (str(most), str(least)) == ("accuracy at least 0.9", "loss at most 0.5")


def test_the_quality_is_a_mean_of_the_evaluation() -> None:
    evaluation = Evaluation(10, {"accuracy": 0.25}, uncounted=("other",))
    assert QualityTarget("a", "accuracy", 0.9).quality_of(evaluation) == 0.25
    assert math.isnan(QualityTarget("a", "other", 0.9).quality_of(evaluation))
    assert math.isnan(QualityTarget("a", "none of this time", 0.9).quality_of(evaluation))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metric": ""}, "metric must be a name"),
        ({"benchmark": None}, "benchmark must be a name"),
        ({"value": math.nan}, "value must be a finite number"),
        ({"mode": "most"}, 'mode must be "max" or "min"'),
    ],
)
def test_a_wrong_target_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        QualityTarget(**{"benchmark": "a", "metric": "accuracy", "value": 0.9, **wrong})
