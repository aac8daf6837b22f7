"""FLOPs, traffic and repeated work of plans, against numbers worked out by hand in the comments."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.lowering.report import accounting
from meshtf.planning.plan import Plan
from meshtf.testing import assert_close
from tests.lowering.report.hand_counted_plans import COLS, FLOAT, ROWS, perceptron, plan_of

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def split_both_ways() -> Plan:
    return plan_of(perceptron, "batch:rows;hidden:cols")


def test_variables(split_both_ways: Plan) -> None:
    stored = accounting.stored_variables(split_both_ways)
    assert {name: v.slice_bytes for name, v in stored.items()} == {
        "first": 16 * (32 // COLS) * FLOAT,
        "second": (32 // COLS) * 4 * FLOAT,
    }
    assert accounting.variable_bytes(split_both_ways) == 512 + 128


def test_variables_kept_more_finely_than_they_are_used() -> None:
    plan = plan_of(perceptron, "batch:rows;hidden:cols", parameter_layout="d_in:rows;d_out:rows;hidden:cols")
    assert accounting.variable_bytes(plan) == (512 + 128) // ROWS
    # Each is gathered over the rows: a core sends its slice to the one other.
    assert [(t.kind, t.axes, t.count, t.bytes_sent) for t in accounting.traffic(plan)] == [
        ("all_gather", ("rows",), 2, 256 + 64),
        ("all_reduce", ("cols",), 1, 96),
    ]


def test_flops(split_both_ways: Plan) -> None:
    batch, hidden = 8 // ROWS, 32 // COLS
    assert accounting.flops(split_both_ways) == 2 * batch * 16 * hidden + batch * hidden + 2 * batch * hidden * 4


def test_traffic(split_both_ways: Plan) -> None:
    (traffic,) = accounting.traffic(split_both_ways)
    sum_bytes = (8 // ROWS) * 4 * FLOAT
    # The best allreduce scatters and gathers: each time a core sends all parts but its own.
    assert traffic == accounting.Traffic("all_reduce", ("cols",), 1, 2 * sum_bytes * (COLS - 1) // COLS)


def test_nothing_is_repeated_where_every_axis_splits(split_both_ways: Plan) -> None:
    assert accounting.repeated_work(split_both_ways) == []


def test_work_is_repeated_where_the_batch_is_not_split() -> None:
    plan = plan_of(perceptron, "hidden:cols")
    work = accounting.repeated_work(plan)
    assert [(w.compute.kind, w.axes, w.times) for w in work] == [
        ("einsum", ("rows",), ROWS),
        ("relu", ("rows",), ROWS),
        ("einsum", ("rows",), ROWS),
    ]
    assert sum(w.flops for w in work) == accounting.flops(plan)


def test_everything_is_repeated_where_nothing_is_split() -> None:
    plan = plan_of(perceptron, "")
    assert {(w.axes, w.times) for w in accounting.repeated_work(plan)} == {(("rows", "cols"), ROWS * COLS)}
    assert accounting.traffic(plan) == []


def test_an_axis_of_size_one_repeats_nothing() -> None:
    plan = plan_of(perceptron, "batch:rows", "rows:8;cols:1")
    assert accounting.repeated_work(plan) == []


def test_a_sum_that_is_pending_is_no_repetition() -> None:
    plan = plan_of(lambda x: 2.0 * mtf.reduce_sum(x), "batch:rows;d_in:cols")
    # The scalar differs from core to core until it is reduced; 2 * it is then a term of the sum as well.
    assert accounting.repeated_work(plan) == []
    assert [t.kind for t in accounting.traffic(plan)] == ["all_reduce"]


@pytest.mark.parametrize("layout", ["", "batch:rows", "batch:rows+cols", "hidden:cols", "batch:rows;hidden:cols"])
def test_all_cores_together_do_at_least_the_work_of_one(layout: str) -> None:
    one, plan = plan_of(perceptron, "", "rows:1"), plan_of(perceptron, layout)
    repeated = sum(w.flops * (1 - 1 / w.times) for w in accounting.repeated_work(plan))
    useful = plan.mesh_shape.size * (accounting.flops(plan) - repeated)
    assert_close(useful, accounting.flops(one), terms=64)
