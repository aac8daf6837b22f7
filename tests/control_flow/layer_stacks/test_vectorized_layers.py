"""Layers computed at once stay apart, and what the gradient's loops draw is the same in every iteration if asked."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

STAGE, ROUND, BATCH = mtf.Dimension("stage", 2), mtf.Dimension("round", 3), mtf.Dimension("batch", 4)
X = np.ones([2, 4], np.float32)


def noisy(xs: list[mtf.Tensor]) -> list[mtf.Tensor]:
    (x,) = xs
    w = mtf.get_variable(x.mesh, "w", [BATCH])
    return [x * w + mtf.random_uniform(x.mesh, [BATCH])]


@pytest.mark.parametrize(("mesh_shape", "layout"), [("all:1", ""), ("rows:2;cols:2", "stage:rows;batch:cols")])
def test_layers_of_any_numbers_have_the_bits_of_the_stack(mesh_shape: str, layout: str) -> None:
    layers = mtf.Dimension("layers", 6)

    def stack(x: mtf.Tensor) -> mtf.Tensor:
        one = mtf.zeros(x.mesh, [BATCH]) + 1.0
        return mtf.layer_stack(lambda xs, _: (xs, noisy(xs)), one, layers)[1][0]

    def vectorized(x: mtf.Tensor) -> list[mtf.Tensor]:
        own = mtf.vectorized_layers(x.mesh, noisy, [(x.shape, x.dtype)], [STAGE, ROUND], STAGE)
        assert [w.shape for w in own.weights] == [mtf.Shape([STAGE, ROUND, BATCH])]
        numbers = mtf.constant(x.mesh, [[0, 1, 2], [3, 4, 5]], [STAGE, ROUND], tf.int32)
        sliced = [numbers, *own.weights]
        return mtf.scan(lambda xs, parts: (xs, own(xs, parts[1:], parts[0])), x, sliced, ROUND, draws_alike=True)[1]

    feeds = {"x": (mtf.Shape([STAGE, BATCH]), X)}
    expected = interpret(stack, feeds, "all:1").results
    (found,) = interpret(vectorized, feeds, mesh_shape, layout).results
    assert_close(found, np.stack([expected[:3], expected[3:]], axis=1), terms=FUNCTION_TERMS)


@pytest.mark.parametrize("cores", [1, 2, 3, 4, 6])
def test_what_is_made_of_a_micro_batch_has_the_bits_of_the_whole(cores: int) -> None:
    """Three numbers of each example; a core has those of some examples, or of one, or of parts of two."""

    def drawn(xs: list[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.random_uniform(xs[0].mesh, [("parts", 3 * xs[0].shape.get_dim_by_name("batch").size)])]

    def stack(x: mtf.Tensor) -> mtf.Tensor:
        whole = mtf.zeros(x.mesh, [("batch", 8)])
        return mtf.layer_stack(lambda xs, _: (xs, drawn(xs)), whole, mtf.Dimension("layers", 2))[1][0]

    def vectorized(x: mtf.Tensor) -> mtf.Tensor:
        """Layer 0 works on micro-batch 1, and layer 1 on micro-batch 0."""
        own = mtf.vectorized_layers(x.mesh, drawn, [(x.shape, x.dtype)], [STAGE], STAGE)
        numbers = mtf.range(x.mesh, STAGE, tf.int32)
        return own([x], [], numbers, 1 - numbers, mtf.Dimension("batch", 2), also_microbatched=["parts"])[0]

    feeds = {"x": (mtf.Shape([STAGE, BATCH]), X)}
    whole = interpret(stack, feeds, "all:1").results.reshape(2, 4, 2, 3)
    found = interpret(vectorized, feeds, f"all:{cores}", "parts:all" if cores > 1 else "").results
    np.testing.assert_array_equal(found.reshape(2, 4, 3), np.stack([whole[0, :, 1], whole[1, :, 0]]))


def test_layers_that_are_mixed_are_refused() -> None:
    def built(fn, along: mtf.Dimension = STAGE):  # noqa: ANN001, ANN202
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph)
        with graph:
            x = mtf.zeros(mesh, [STAGE, BATCH])
            own = mtf.vectorized_layers(mesh, fn, [(x.shape, x.dtype)], [STAGE], along)
            own([x], own.weights, mtf.range(mesh, STAGE, tf.int32))

    calls = []

    def fickle(xs):  # noqa: ANN001, ANN202
        calls.append(None)
        return [xs[0] * mtf.get_variable(xs[0].mesh, f"w{len(calls)}", [BATCH])]

    with pytest.raises(GraphError, match=r'reduce_sum \[batch:4\], made at .*, loses dimension "stage:2" of'):
        built(lambda xs: [mtf.reduce_sum(xs[0], reduced_dim=STAGE)])
    with pytest.raises(GraphError, match=r'makes variable "layer/w2" that it did not make in the rehearsal'):
        built(fickle)
    with pytest.raises(ShapeError, match=re.escape('"round:3" does not count layers; these do: [stage:2]')):
        built(lambda xs: xs, along=ROUND)


@pytest.mark.parametrize("draws_alike", [True, False])
def test_a_scan_draws_alike_where_asked(draws_alike: bool) -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        def one(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return carried, [mtf.random_uniform(x.mesh, [BATCH])]

        return mtf.scan(one, x, [], ROUND, draws_alike=draws_alike)[1][0]

    found = interpret(step, {"x": (mtf.Shape([STAGE, BATCH]), X)}, "all:1").results
    assert np.ptp(found[0]) > 0.0
    assert np.array_equal(found[0], found[1]) is draws_alike
