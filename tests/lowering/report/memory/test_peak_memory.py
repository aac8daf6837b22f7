"""Memory of plans, against numbers worked out by hand in the comments."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.lowering.report import accounting
from meshtf.lowering.report.memory.peak_memory import peak_memory
from tests.lowering.report.hand_counted_plans import BATCH, COLS, FLOAT, IN, ROWS, perceptron, plan_of

pytestmark = pytest.mark.quick


def test_peak_memory() -> None:
    peak = peak_memory(plan_of(perceptron, "batch:rows;hidden:cols"))
    variables, feed = 512 + 128, 8 // ROWS * 16 * FLOAT
    hidden = 4 * 8 * FLOAT
    assert (peak.variables, peak.feeds) == (variables, feed)
    # In the activation: its input and its output.
    assert peak.total == variables + feed + 2 * hidden
    assert peak.operation is not None
    assert peak.operation.name == "relu"


def test_peak_memory_is_freed_after_the_last_use() -> None:
    def chain(x: mtf.Tensor) -> mtf.Tensor:
        for _ in range(10):
            x = mtf.exp(x)
        return x

    whole = 8 * 16 * FLOAT
    assert peak_memory(plan_of(chain, "")).total == 3 * whole  # the feed, an input and an output


def test_peak_memory_of_what_is_kept() -> None:
    def kept(x: mtf.Tensor) -> list[mtf.Tensor]:
        results = [mtf.exp(x)]
        for _ in range(3):
            results.append(mtf.exp(results[-1]))
        return results

    whole = 8 * 16 * FLOAT
    assert peak_memory(plan_of(kept, "")).total == (1 + 4) * whole


def test_views_take_no_memory() -> None:
    def views(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.exp(x)
        for name in "abc":
            y = mtf.stop_gradient(mtf.rename_dimension(y, y.shape[0].name, name))
        return mtf.reshape(y, [mtf.Dimension("both", 128)])

    assert peak_memory(plan_of(views, "")).total == 2 * 8 * 16 * FLOAT


def test_a_transpose_is_a_copy() -> None:
    plan = plan_of(lambda x: mtf.transpose(mtf.exp(x), [IN, BATCH]), "")
    assert peak_memory(plan).total == 3 * 8 * 16 * FLOAT
    assert accounting.flops(plan) == 8 * 16


def updated(w: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
    """The sum of x, after two elementwise operations of which each takes a whole x."""
    mtf.assign_add(w, x)
    return mtf.reduce_sum(mtf.exp(mtf.sin(x)))


def test_a_new_value_takes_the_place_of_the_old_one() -> None:
    def update(x: mtf.Tensor) -> mtf.Tensor:
        return updated(mtf.get_variable(x.mesh, "w", [BATCH, IN]), x)

    whole = 8 * 16 * FLOAT
    peak = peak_memory(plan_of(update, ""))
    # The old and the new value with the feed; later the new value with the feed, the sine and the exponential.
    assert peak.total == 4 * whole
    assert peak.variables == whole
    assert peak.operation is not None
    assert peak.operation.name == "exp"


def test_new_values_that_a_check_may_refuse_are_kept_beside_the_old() -> None:
    def update(x: mtf.Tensor) -> mtf.Tensor:
        return updated(mtf.get_variable(x.mesh, "w", [BATCH, IN]), mtf.check_finite(x))

    flag = 1
    assert peak_memory(plan_of(update, "")).total == 5 * (8 * 16 * FLOAT) + flag


WIDE = mtf.Dimension("wide", 4096)
WIDE_BYTES = 4096 * FLOAT


def momentum_step(x: mtf.Tensor) -> mtf.Tensor:
    """Updates two variables of `wide` by the sum of x, and gives the weights."""
    w = mtf.get_variable(x.mesh, "w", [WIDE])
    momentum = mtf.get_variable(x.mesh, "momentum", [WIDE], trainable=False)
    new = momentum * 0.9 + mtf.reduce_sum(x)
    mtf.assign(momentum, new)
    mtf.assign(w, w - new * 0.1)
    return w


def test_an_update_in_place_needs_no_memory() -> None:
    def update(x: mtf.Tensor) -> mtf.Tensor:
        momentum_step(x)
        return mtf.reduce_sum(x)

    peak = peak_memory(plan_of(update, ""))
    assert peak.variables == 2 * WIDE_BYTES
    assert peak.total < peak.variables + WIDE_BYTES


def test_a_variable_that_something_else_reads_is_held_while_it_is_updated() -> None:
    peak = peak_memory(plan_of(lambda x: mtf.reduce_sum(momentum_step(x)), ""))
    scalars = 64
    assert 3 * WIDE_BYTES < peak.total - peak.feeds < 3 * WIDE_BYTES + scalars


LAYER_DIMS = (mtf.Dimension("d_in", 64), mtf.Dimension("d_out", 64))
GRADIENT_BYTES = 64 * 64 * FLOAT


def most_gradients(layers: int, mesh_impl: mtf.PlanMeshImpl) -> int:
    """Bytes of gradients at once, where each layer has one of GRADIENT_BYTES."""

    def train(x: mtf.Tensor) -> mtf.Tensor:
        for i in range(layers):
            w = mtf.get_variable(x.mesh, f"w_{i}", LAYER_DIMS)
            x = mtf.rename_dimension(mtf.tanh(mtf.einsum([x, w], [BATCH, LAYER_DIMS[1]])), "d_out", "d_in")
        loss = mtf.reduce_sum(x)
        mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return loss

    step = mtf.function(train, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, LAYER_DIMS[0]])})
    return step.report().memory.gradients


def test_gradients_are_used_as_soon_as_they_are_there() -> None:
    """All layers have one; not all of them are there at once."""
    one_core = mtf.PlanMeshImpl("rows:1", "batch:rows")
    assert most_gradients(8, one_core) == most_gradients(4, one_core) < 3 * GRADIENT_BYTES


def test_all_gradients_may_wait_for_other_cores() -> None:
    two_cores = mtf.PlanMeshImpl("rows:2", "batch:rows", bucket_bytes=0)
    assert most_gradients(8, two_cores) == most_gradients(4, two_cores) + 4 * GRADIENT_BYTES


def test_what_a_collective_receives_is_counted() -> None:
    def products(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.einsum([x, mtf.rename_dimension(x, "d_in", "other")], [IN, mtf.Dimension("other", 16)])

    feed, term = 8 * 16 * FLOAT, 16 * 16 * FLOAT
    # A term on each core, the other core's, and the sum.
    assert peak_memory(plan_of(products, "batch:rows", "rows:2")).total == feed + 3 * term


def test_a_copy_that_puts_columns_in_order_is_counted() -> None:
    plan = plan_of(lambda x: mtf.with_layout(mtf.exp(x), ""), "d_in:rows", "rows:2")
    whole = 8 * 16 * FLOAT
    # The slices of the feed and of the exponential, all slices as they are received, and in order.
    assert peak_memory(plan).total == 2 * whole // 2 + 2 * whole


def test_a_sharded_fetch_is_kept_in_slices() -> None:
    whole = 8 * 16 * FLOAT
    plan = plan_of(mtf.exp, "batch:rows+cols")
    # A core is handed its slice of the feed and computes its slice of the result; nothing is gathered.
    assert peak_memory(plan).total == 2 * whole // (ROWS * COLS)
    assert not accounting.traffic(plan)


def test_a_slice_is_cut_once_however_many_read_it() -> None:
    plan = plan_of(lambda x: [mtf.exp(x) + mtf.sin(x), mtf.replicate(x)], "batch:rows")
    assert [getattr(i, "kind", "") for i in plan.instructions].count("slice") == 1
