"""Which feeds are cut before they are handed to the cores: those that cores only take their slice of."""

from __future__ import annotations

import meshtf as mtf
from meshtf.planning.plan import Plan

X = {"x": mtf.TensorSpec("batch:8 d_model:6")}


def sums(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(mtf.square(x), reduced_dim="batch")


def plan_of(layout: str, *, returns: bool = False) -> Plan:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [sums(x), mtf.replicate(x)] if returns else [sums(x)]

    return mtf.testing.plan(program, X, "rows:2;cols:4", layout)


def test_a_feed_that_is_split_is_cut() -> None:
    plan = plan_of("batch:rows")
    assert [f.output.slice_shape for f in plan.feeds] == [(4, 6)]
    assert [f.output.layout.axes for f in plan.feeds] == [(("rows",), ())]


def test_one_that_some_work_needs_whole_is_not() -> None:
    for plan in (plan_of(""), plan_of("batch:rows", returns=True)):
        assert [f.output.slice_shape for f in plan.feeds] == [(8, 6)]
