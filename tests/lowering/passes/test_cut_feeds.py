"""Which feeds are cut before they are handed to the cores: those that cores only take their slice of."""

from __future__ import annotations

import meshtf as mtf
from meshtf.lowering.passes.cut_feeds import cut_feeds
from meshtf.planning.plan import Plan

X = {"x": mtf.TensorSpec("batch:8 d_model:6")}


def plan_of(layout: str, *, returns: bool = False) -> Plan:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        sums = mtf.reduce_sum(mtf.square(x), reduced_dim="batch")
        return [sums, mtf.replicate(x)] if returns else [sums]

    return mtf.testing.plan(program, X, "rows:2;cols:4", layout)


def test_a_feed_that_is_split_is_cut() -> None:
    plan = plan_of("batch:rows")
    cut = cut_feeds(plan)
    assert [f.output.slice_shape for f in plan.feeds] == [(8, 6)]
    assert [f.output.slice_shape for f in cut.feeds] == [(4, 6)]
    assert [f.output.layout.axes for f in cut.feeds] == [(("rows",), ())]
    assert len(cut.instructions) == len(plan.instructions) - 1


def test_one_that_some_work_needs_whole_is_not() -> None:
    for plan in (plan_of(""), plan_of("batch:rows", returns=True)):
        assert [f.output.slice_shape for f in cut_feeds(plan).feeds] == [(8, 6)]
        assert cut_feeds(plan).instructions == plan.instructions
