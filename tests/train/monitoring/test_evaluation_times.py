from __future__ import annotations

import pytest

from meshtf.train.monitoring.evaluation_times import EvaluationTimes, short_duration


@pytest.mark.parametrize(
    ("step", "num_steps", "every", "evaluations"),
    [(0, 100, None, 1), (20, 100, 20, 4), (30, 100, 20, 4), (90, 110, 20, 2), (100, 110, 20, 1), (100, 100, 20, 0)],
)
def test_the_time_left_counts_the_last_evaluation_and_leaves_out_the_first_which_compiles(
    step: int, num_steps: int, every: int | None, evaluations: int
) -> None:
    assert EvaluationTimes([10.0, 1.0, 3.0]).seconds_left(step, num_steps, every) == 2.0 * evaluations
    assert EvaluationTimes([10.0]).seconds_left(step, num_steps, every) == 10.0 * evaluations
    assert EvaluationTimes().seconds_left(step, num_steps, every) == 0


def test_it_is_told_beside_the_steps() -> None:
    assert str(EvaluationTimes([0.25])) == "1 evaluation in 0.25 s, beside the time of the steps"
    assert str(EvaluationTimes([100.0, 50.0])) == "2 evaluations in 2 min, beside the time of the steps"
    assert short_duration(0.1234) == "0.12 s"
