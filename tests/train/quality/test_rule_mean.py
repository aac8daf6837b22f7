from __future__ import annotations

import pytest

from meshtf.train.quality.rule_mean import rule_mean


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([9.0, 1.0, 4.0, 2.0, 3.0], 3.0),  # of 2, 3 and 4
        ([1.0, None, 2.0, 3.0], 2.5),  # the one that did not converge is the slowest
        ([1.0, None, None, 2.0, 3.0], None),
        ([1.0, 2.0], None),
        ([None, 1.0, 2.0], 2.0),
    ],
)
def test_the_fastest_and_the_slowest_are_dropped(seconds: list[float | None], expected: float | None) -> None:
    assert rule_mean(seconds) == expected
