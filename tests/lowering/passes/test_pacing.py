"""Cores neither gather weights nor make gradients further ahead than memory allows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.report.memory._execution_orders import collectives_early, collectives_late
from meshtf.lowering.report.memory.peak_memory import peak_memory
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.plan import Collective, Compute, Instruction

BATCH, WIDTH, INNER = mtf.Dimension("batch", 64), mtf.Dimension("width", 256), mtf.Dimension("inner", 256)
LAYERS = 6
WEIGHT = 256 * 256 * 4  # bytes


def trained(x: mtf.Tensor) -> mtf.Tensor:
    for i in range(LAYERS):
        w = mtf.get_variable(x.mesh, f"w_{i}", [WIDTH, INNER])
        x = mtf.rename_dimension(mtf.tanh(mtf.einsum([x, w], [BATCH, INNER])), "inner", "width")
    loss = mtf.reduce_mean(mtf.square(x))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


ONE_WEIGHT_AHEAD = PassOptions(most_bytes_ahead=WEIGHT)


def program(
    parameter_layout: str | None, pass_options: PassOptions = DEFAULT_PASS_OPTIONS, *, runs: bool = False
) -> mtf.Function:
    make = mtf.SpmdMeshImpl if runs else mtf.PlanMeshImpl
    mesh_impl = make("cores:2", "batch:cores", parameter_layout=parameter_layout, bucket_bytes=0)
    inputs = {"x": mtf.TensorSpec([BATCH, WIDTH])}
    return mtf.function(trained, mesh_impl, inputs=inputs, pass_options=pass_options)


def is_product(instruction: Instruction) -> bool:
    return isinstance(instruction, Compute) and instruction.kind == "einsum"


def gathered_before_the_first_product(order: list[Instruction]) -> int:
    first = next(n for n, i in enumerate(order) if is_product(i))
    return sum(isinstance(i, Collective) for i in order[:first])


def products_after_the_first_sum(order: list[Instruction]) -> int:
    first = next(n for n, i in enumerate(order) if isinstance(i, Collective))
    return sum(is_product(i) for i in order[first:])


def test_weights_are_not_gathered_long_before_they_are_used() -> None:
    plan = program("width:cores", ONE_WEIGHT_AHEAD).lowering.plan
    assert gathered_before_the_first_product(collectives_early(plan)) == 2


def test_nothing_waits_where_little_is_moved() -> None:
    plan = program("width:cores").lowering.plan
    assert plan.awaited == {}
    # Collectives keep their order: the next one is the sum of a gradient.
    assert gathered_before_the_first_product(collectives_early(plan)) == LAYERS


def test_memory_is_bounded_by_how_far_ahead_cores_may_be() -> None:
    free, paced = (
        program("width:cores", options).lowering.plan for options in (DEFAULT_PASS_OPTIONS, ONE_WEIGHT_AHEAD)
    )
    assert peak_memory(paced).total < peak_memory(free).total - 2 * WEIGHT


def test_gradients_do_not_pile_up_before_slow_collectives() -> None:
    assert products_after_the_first_sum(collectives_late(program(None).lowering.plan)) == 0
    plan = program(None, ONE_WEIGHT_AHEAD).lowering.plan
    # When the first sum has to be over, two gradients are there, and the products before the third are done.
    assert products_after_the_first_sum(collectives_late(plan)) > LAYERS
    position = {instruction: n for n, instruction in enumerate(plan.instructions)}
    assert all(position[before] < position[after] for after, before in plan.awaited.items())


@pytest.mark.parametrize("parameter_layout", [None, "width:cores"])
def test_cores_that_wait_compute_the_same(parameter_layout: str | None) -> None:
    paced = program(parameter_layout, ONE_WEIGHT_AHEAD, runs=True)
    assert paced.lowering.plan.awaited
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    losses = [float(paced(x=x)) for _ in range(3)]
    free = program(parameter_layout, PassOptions(most_bytes_ahead=1 << 40), runs=True)
    np.testing.assert_array_equal([float(free(x=x)) for _ in range(3)], losses)


def test_nothing_waits_for_an_update_of_rows() -> None:
    """It writes to variables: a core has no value of it that another instruction could wait for."""
    rows = mtf.Dimension("rows", 10)

    def step(x: mtf.Tensor, ids: mtf.Tensor) -> mtf.Tensor:
        for name in ("first", "second"):
            table = mtf.get_variable(x.mesh, name, [rows, WIDTH], initializer=mtf.ones)
            x = mtf.tanh(x) * mtf.gather(table, ids, rows)
        loss = mtf.reduce_sum(mtf.square(x))
        mtf.optimize.SparseSgdOptimizer(0.1).minimize(loss)
        return loss

    inputs = {"x": mtf.TensorSpec([BATCH, WIDTH]), "ids": mtf.TensorSpec([BATCH], tf.int32)}
    options = PassOptions(light_flops=0, most_bytes_ahead=0)
    plan = mtf.function(step, mtf.PlanMeshImpl("cores:2", "batch:cores"), inputs, pass_options=options).lowering.plan
    awaited = [i.emit for i in plan.awaited.values() if isinstance(i, Compute)]
    assert awaited
    assert not any(isinstance(emit, RowUpdate) for emit in awaited)


STACK = mtf.Dimension("layers", 4)
POLICY = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)


def many_weights(x: mtf.Tensor) -> mtf.Tensor:
    """Four stacks of weights in one scan, trained by Adafactor, and a check behind which they are updated."""
    wide = mtf.Dimension("wide", 256)
    weights = [mtf.get_variable(x.mesh, f"w_{i}", [STACK, WIDTH, wide]) for i in range(4)]

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (y,) = carried
        for part in parts:
            y = mtf.rename_dimension(mtf.tanh(mtf.einsum([y, part], [BATCH, wide])), "wide", "width")
        return [y], []

    (y,), _ = mtf.scan(layer, mtf.cast(x, tf.bfloat16), weights, STACK, recompute="nothing")
    loss = mtf.check_finite(mtf.reduce_mean(mtf.square(mtf.cast(y, tf.float32))), "the loss")
    mtf.optimize.AdafactorOptimizer().minimize(loss)
    return loss


def test_large_updates_come_one_after_the_other() -> None:
    """In any order that TensorFlow may take, no more is there than all variables and gradients, and what one update
    makes: the gradient in float32, its squares, the old weight's scaled change."""
    options = PassOptions(most_bytes_ahead=1 << 16)
    impl, inputs = (
        mtf.PlanMeshImpl("cores:2", "batch:cores", shard_weight_update=False),
        {"x": mtf.TensorSpec([BATCH, WIDTH])},
    )
    step = mtf.function(many_weights, impl, inputs=inputs, pass_options=options, variable_dtype=POLICY)
    report, stack = step.report(), STACK.size * WEIGHT
    few = 40 * WIDTH.size * BATCH.size  # of the batch, and rows and columns
    assert report.memory.peak < report.memory.variables + 4 * stack // 2 + 3 * stack + few
