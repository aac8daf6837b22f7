"""Unrolled layers in the HLO: their results are the loop's, nothing recomputed is merged, and caches are not copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import assert_close, terms_of
from tests.house.sharpest import sharpest

BATCH, D, HIDDEN, LENGTH = (mtf.Dimension(n, s) for n, s in (("batch", 4), ("d", 8), ("hidden", 16), ("length", 40)))
LAYERS = mtf.Dimension("layers", 4)
INPUTS = {"x": mtf.TensorSpec([BATCH, D])}


def training(recompute: str | mtf.RecomputePolicy) -> Callable[[mtf.Tensor], mtf.Tensor]:
    def layer(carried: list[mtf.Tensor], _: object) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        h = mtf.relu(mtf.layers.dense(carried[0], [HIDDEN], name="into"))
        h = mtf.dropout(h, True, rate=0.1)
        return [carried[0] + mtf.layers.dense(h, [D], name="out")], [mtf.reduce_sum(h)]

    def train(x: mtf.Tensor) -> mtf.Tensor:
        (y,), (sums,) = mtf.layer_stack(layer, x, LAYERS, recompute=recompute)
        loss = mtf.reduce_mean(mtf.square(y)) + mtf.reduce_sum(sums) * 1e-3
        mtf.optimize.AdamWOptimizer(1e-2).minimize(loss)
        return loss

    return train


def opcodes(step: mtf.Function) -> Counter[str]:
    hlo = step.hlo()
    assert hlo is not None
    return Counter(i.opcode for computation in parsed_hlo(hlo).computations for i in computation.instructions)


# Products of a layer: two forward, four in the gradient, and those that are computed again: the first alone, since the
# gradient reads what relu makes of it; nested, both of a segment's layers, and then the first.
@pytest.mark.parametrize(
    ("recompute", "products", "barriers"),
    sharpest([("everything", 6, 0), ("nothing", 7, 4), ("nested", 9, 6)], [("nested", 9, 6)]),
)
def test_a_step_of_unrolled_layers_is_that_of_the_loop(recompute: str, products: int, barriers: int) -> None:
    """With split weights and batch; every recomputing iteration takes what was kept through one barrier."""
    x = np.random.default_rng(0).normal(size=[4, 8]).astype(np.float32)
    losses, names = {}, {}
    for unroll_layers in (False, True):
        mesh_impl = mtf.GpuMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols", unroll_layers=unroll_layers)
        step = mtf.function(training(recompute), mesh_impl, inputs=INPUTS)
        losses[unroll_layers] = [step(x=x).numpy() for _ in range(3)]
        found = opcodes(step)
        assert (found["while"] > 0) != unroll_layers
        assert found["dot"] == products * (LAYERS.size if unroll_layers else 1)
        assert found["opt-barrier"] == barriers * unroll_layers
        names[unroll_layers] = sorted(step.variables)
    assert names[True] == names[False]
    assert losses[True][-1] < losses[True][0]
    for turn, (one, other) in enumerate(zip(*losses.values(), strict=True)):
        assert_close(one, other, terms=terms_of(step._execution.plan), steps=turn, magnitude=4.0)


def test_a_stack_of_no_layers_has_a_gradient() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        layer = lambda carried, _: ([mtf.tanh(carried[0])], [])  # noqa: E731
        (y,), _ = mtf.layer_stack(layer, x, mtf.Dimension("layers", 0))
        return mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])

    x = np.ones([4, 8], np.float32)
    (found,) = mtf.function(program, mtf.GpuMeshImpl("rows:2", "batch:rows"), inputs=INPUTS)(x=x)
    np.testing.assert_array_equal(found, 2 * x)


def test_a_policy_of_loops_alone_ties_nothing_in_unrolled_layers() -> None:
    """The compiler then merges what is computed again with the forward pass, if it gains from that."""
    mesh_impl = mtf.GpuMeshImpl("all:1", "")
    policies = [mtf.RecomputePolicy("costly", only_in_loops=is_of_loops) for is_of_loops in (False, True)]
    steps = [mtf.function(training(policy), mesh_impl, inputs=INPUTS) for policy in policies]
    assert [opcodes(step)["opt-barrier"] for step in steps] == [LAYERS.size, 0]
    assert steps[0].report().memory.peak == steps[1].report().memory.peak


def decoding(x: mtf.Tensor) -> mtf.Tensor:
    """Fills a cache of each layer, position by position, and returns all of them."""
    caches = mtf.zeros(x.mesh, [LAYERS, LENGTH, BATCH, D])

    def turn(position: mtf.Tensor, h: mtf.Tensor, caches: mtf.Tensor) -> list[mtf.Tensor]:
        at = mtf.one_hot(position, LENGTH)

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            h = mtf.tanh(mtf.layers.dense(carried[0], [mtf.Dimension("d", 8)], name="into"))
            cache = parts[0] + at * h
            return [h + mtf.reduce_mean(cache, reduced_dim=LENGTH)], [cache]

        (h,), (caches,) = mtf.layer_stack(layer, h, LAYERS, caches)
        return [position + 1, h, caches]

    zero = mtf.constant(x.mesh, 0, dtype=tf.int32)
    going = lambda position, *_: mtf.less(position, 40)  # noqa: E731
    return mtf.while_loop(going, turn, [zero, x, caches], maximum_iterations=40, compiled=True)[2]


def test_the_caches_of_unrolled_layers_are_carried_one_by_one() -> None:
    """The loop over tokens has one tensor for each layer's cache, and stacks none inside."""
    x = np.random.default_rng(0).normal(size=[4, 8]).astype(np.float32)
    found = []
    for unroll_layers in (False, True):
        mesh_impl = mtf.GpuMeshImpl("rows:2", "batch:rows", unroll_layers=unroll_layers)
        step = mtf.function(decoding, mesh_impl, inputs=INPUTS)
        found.append(step(x=x).numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)
    hlo = step.hlo()
    assert hlo is not None
    every = [i for computation in parsed_hlo(hlo).computations for i in computation.instructions]
    (loop,) = (i for i in every if i.opcode == "while")
    carried = [tuple(s.dimensions) for s in loop.shape.tuple_shapes]
    assert carried.count((40, 2, 8)) == LAYERS.size
    assert (4, 40, 2, 8) not in carried
