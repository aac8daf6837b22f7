"""All of a run can be read in its picture, and what is outside is told."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from meshtf.train.monitoring.curve_scale import CurveScale

STEPS = list(range(1, 1001))


def of(values: list[float], steps: list[int] | None = None) -> CurveScale:
    return CurveScale.of([(steps or STEPS[: len(values)], values)])


def share_of_the_height(scale: CurveScale, values: list[float]) -> float:
    """Of these values' range."""
    assert scale.low is not None
    assert scale.high is not None
    low, high = (math.log(x) if scale.is_logarithmic else x for x in (scale.low, scale.high))
    shown = [math.log(x) if scale.is_logarithmic else x for x in values]
    return (max(shown) - min(shown)) / (high - low)


@pytest.mark.parametrize("fast", [3.0, 10.0, 40.0])
@pytest.mark.parametrize("floor", [0.0, 2.0])
def test_the_last_nine_tenths_take_a_third_of_the_height_at_least(fast: float, floor: float) -> None:
    values = [floor + 8 * math.exp(-step / fast) + 0.2 * math.exp(-step / 600) for step in STEPS]
    scale = of(values)
    assert share_of_the_height(scale, values[100:]) > 0.3
    above = sum(value > (scale.high or 0) for value in values)
    told = f"not shown: {above} values above, up to {values[0]:.4g} at step 1" if above else ""
    assert scale.cut == told
    assert all((scale.low or 0) < value for value in values)


def test_nothing_is_cut_where_all_of_it_can_be_read() -> None:
    straight = [5 - step / 250 for step in STEPS]
    scale = of(straight)
    assert (scale.is_logarithmic, scale.cut) == (False, "")
    assert share_of_the_height(scale, straight) > 0.85
    short = of([2.0, 1.0, 0.5, 0.4], [1, 2, 3, 4])
    assert short.cut == ""
    assert (short.low or 9) < 0.4 < 2.0 < (short.high or 0)
    even = of([1.0] * 9)
    assert (even.low or 9) < 1.0 < (even.high or 0)


def test_values_of_many_magnitudes_are_on_a_logarithmic_scale() -> None:
    values = [math.exp(-step / 100) for step in STEPS]
    assert of(values).is_logarithmic
    assert share_of_the_height(of(values), values) > 0.85
    assert not of([*values[1:], -1.0]).is_logarithmic
    assert not of([value + 1 for value in values]).is_logarithmic


def test_spikes_and_what_is_no_number_are_told_and_change_nothing_else() -> None:
    calm = [2 + math.sin(step) / 10 for step in STEPS]
    spiked = [*calm]
    spiked[499], spiked[699], spiked[899] = 1e5, -50.0, math.nan
    scale = of(spiked)
    assert scale.cut == (
        "not shown: 1 value above, 1e+05 at step 500; 1 value below, -50 at step 700; "
        "1 value that is not finite, at step 900"
    )
    assert share_of_the_height(scale, calm) > 0.5
    kept = scale.without_spikes(spiked)
    height = (scale.high or 0) - (scale.low or 0)
    assert kept[899] == calm[898]
    assert kept[499] == pytest.approx((scale.high or 0) + height)
    assert kept[699] == pytest.approx((scale.low or 0) - height)
    assert [x for i, x in enumerate(kept) if i not in (499, 699, 899)] == [
        x for i, x in enumerate(calm) if i not in (499, 699, 899)
    ]


def test_nothing_to_show() -> None:
    assert CurveScale.of([]) == CurveScale(None, None, False, "")
    nothing = of([math.nan, math.inf])
    assert nothing.cut == "not shown: 2 values that are not finite, at step 1"
    assert nothing.without_spikes([1.0]) == [1.0]


def test_several_runs_and_what_matplotlib_makes_of_it() -> None:
    """A long run does not hide what a short one does."""
    one = [2 + 6 * math.exp(-step / 5) for step in STEPS]
    other = [3.0 - step / 100 for step in range(1, 51)]
    scale = CurveScale.of([(STEPS, one), (list(range(1, 51)), other)])
    assert share_of_the_height(scale, other) > 0.3
    axes = Figure().add_subplot()
    scale.apply(axes)
    assert axes.get_ylim() == pytest.approx((scale.low, scale.high))
    assert axes.get_xlabel().replace("\n", " ") == f"step {scale.cut}".strip()
    of([math.exp(-step / 100) for step in STEPS]).apply(axes)
    assert axes.get_yscale() == "log"
