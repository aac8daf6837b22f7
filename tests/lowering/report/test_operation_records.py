"""What a report says of each operation: its work, its bytes, what it waits for, and memory while it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.report.report import Report

pytestmark = pytest.mark.quick

BATCH, D_IN, D_OUT = mtf.Dimension("batch", 8), mtf.Dimension("d_in", 16), mtf.Dimension("d_out", 32)


def _report(mesh_shape: str = "rows:2;cols:2", layout: str = "batch:rows;d_in:cols") -> Report:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [D_IN, D_OUT])
        y = mtf.einsum([x, w], [BATCH, D_OUT])  # this line
        loss = mtf.reduce_sum(mtf.square(mtf.relu(y)))
        mtf.optimize.AdamOptimizer(0.1).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl(mesh_shape, layout)
    return mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D_IN], tf.float32)}).report()


def test_a_product_has_its_sizes_on_one_core_its_bytes_and_the_users_line() -> None:
    report = _report()
    product = next(o for o in report.operations if o.category == "product")
    (sizes,) = product.products
    assert (sizes.batch, sizes.rows, sizes.columns, sizes.contracted) == (1, 4, 32, 8)
    assert product.flops == sizes.flops == 2 * 4 * 32 * 8
    assert (product.bytes_read, product.bytes_written) == (4 * (4 * 8 + 8 * 32), 4 * 4 * 32)
    assert (product.dtype, product.times, product.inside) == ("float32", 1, -1)
    assert product.filename == __file__
    with open(__file__) as source:
        assert source.read().splitlines()[product.line - 1].endswith("# this line")


def test_exponentials_and_the_like_are_counted() -> None:
    step = mtf.function(
        lambda x: mtf.square(mtf.exp(mtf.tanh(x))),
        mtf.PlanMeshImpl("rows:2", "batch:rows"),
        {"x": mtf.TensorSpec([BATCH])},
    )
    counted = {o.name: (o.flops, o.transcendentals) for o in step.report().operations}
    assert counted == {"tanh": (4, 4), "exp": (4, 4), "square": (4, 0)}


@pytest.mark.parametrize("layout", ["batch:rows", "width:rows"])
def test_exponentials_inside_of_other_work_are_counted(layout: str) -> None:
    width = mtf.Dimension("width", 6)
    step = mtf.function(
        lambda x: mtf.softmax(x, width) + mtf.log_softmax(x, width) + mtf.reduce_logsumexp(x, width),
        mtf.PlanMeshImpl("rows:2", layout),
        {"x": mtf.TensorSpec([BATCH, width])},
    )
    assert sum(o.transcendentals for o in step.report().operations) == 3 * BATCH.size * 6 // 2


def test_flops_and_bytes_sent_are_those_of_the_report() -> None:
    report = _report()
    assert sum(o.flops * o.times for o in report.operations) == report.flops_per_core
    assert sum(o.bytes_sent * o.times for o in report.operations) == report.bytes_sent_per_core
    kinds = [(o.kind, o.axes) for o in report.operations if o.category == "collective"]
    assert sorted(kinds) == sorted((c.kind, c.axes) for c in report.collectives)


def test_each_operation_waits_for_earlier_ones_and_the_update_is_marked() -> None:
    report = _report()
    for number, operation in enumerate(report.operations):
        assert all(0 <= needed < number for needed in operation.needs)
    summed = next(o for o in report.operations if o.category == "collective")
    assert "einsum" in {report.operations[n].kind for n in summed.needs}
    updates = [o for o in report.operations if o.is_update]
    assert updates
    assert not any(o.category == "product" for o in updates)


def test_operations_in_loops_and_branches_know_where_they_are() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        def body(carried: Sequence[mtf.Tensor], _: Sequence[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            (y,) = carried
            is_large = mtf.greater(mtf.reduce_sum(y), 2.0)
            return mtf.cond(is_large, lambda: mtf.tanh(y), lambda: y * 2), []

        (y,), _ = mtf.scan(body, x, [], mtf.Dimension("turns", 5))
        return y

    step = mtf.function(program, mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs={"x": mtf.TensorSpec([BATCH])})
    operations = step.report().operations
    (loop,) = [n for n, o in enumerate(operations) if o.category == "loop"]
    (branch,) = [n for n, o in enumerate(operations) if o.category == "branch"]
    inside = {o.alternative: o.kind for o in operations if o.inside == branch and o.category == "elementwise"}
    assert inside[0] == "tanh"
    assert (operations[branch].inside, operations[branch].times) == (loop, 5)


def test_memory_over_time_has_every_kind_and_is_never_more_than_the_peak() -> None:
    report = _report()
    for moment in report.memory_timeline:
        assert (moment.weights, moment.slots) == (report.memory.weights, report.memory.slots)
        assert moment.total <= report.memory.peak
        assert report.operations[moment.operation].inside == -1
    assert max(m.gradients for m in report.memory_timeline) > 0
    assert max(m.activations for m in report.memory_timeline) > 0


def test_json_has_operations_unless_they_are_left_out() -> None:
    report = _report()
    data = json.loads(json.dumps(report.to_dict()))
    assert len(data["operations"]) == len(report.operations)
    assert "operations" not in report.to_dict(operations=False)
    assert data["processes"] == 1
