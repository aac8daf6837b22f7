"""What random programs are compared with: references of many dimensions, and bounds that count what loops repeat."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS
from tests.properties.random_programs.builder import Builder, RejectedError, Space
from tests.properties.random_programs.cases.nested import Tree
from tests.properties.random_programs.program import Node, Program, Step, reduce_over, spread, summed
from tests.properties.random_programs.roundings import terms_of

pytestmark = pytest.mark.quick

SEVEN = mtf.Shape([(name, size) for name, size in zip("abcdefg", (2, 3, 2, 2, 3, 2, 2), strict=True)])
EVEN, ODD = mtf.Shape(SEVEN.dims[::2]), mtf.Shape(SEVEN.dims[1::2])


def new_builder(dtype: tf.DType) -> Builder:
    return Builder(random.Random(0), mtf.Mesh(mtf.Graph("drawn")), mtf.convert_to_shape("all:2"), space=Space((dtype,)))


@pytest.mark.parametrize("own", [EVEN, ODD])
def test_a_reference_is_spread_between_every_two_dimensions_of_seven(own: mtf.Shape) -> None:
    """Which TensorFlow's own broadcast is not made for."""
    array = np.random.default_rng(0).normal(size=own.to_integer_list)
    places = tuple(slice(None) if own.has(d.name) else None for d in SEVEN)
    found = spread(tf.constant(array), own.dimension_names, SEVEN)
    np.testing.assert_array_equal(found, np.broadcast_to(array[places], SEVEN.to_integer_list))


@pytest.mark.parametrize("own", [EVEN, ODD])
def test_a_sum_over_every_second_dimension_of_seven_has_a_second_gradient(own: mtf.Shape) -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=SEVEN.to_integer_list))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = summed(x, SEVEN, own)
            loss = tf.reduce_sum(y * y * y)
        first = inner.gradient(loss, x)
        weighted = tf.reduce_sum(first * x)
    wide = spread(summed(x, SEVEN, own), own.dimension_names, SEVEN).numpy()
    np.testing.assert_allclose(first, 3 * wide**2, rtol=1e-9)
    # Of sum(3 y**2 x), which is sum(3 y**3) over `own`.
    np.testing.assert_allclose(outer.gradient(weighted, x), 9 * wide**2, rtol=1e-9)


def test_equal_maxima_have_equal_shares_of_a_gradient() -> None:
    """Two in one row and one in another: a maximum of each row's would give that one a half."""
    x = tf.constant([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = reduce_over(tf.reduce_max, x, [0, 1])
    np.testing.assert_allclose(tape.gradient(y, x), x / 3)


@pytest.mark.parametrize(("dtype", "of_a_step"), [(tf.bfloat16, 1), (tf.float32, FUNCTION_TERMS + 1)])
def test_a_loop_has_the_terms_of_its_body_in_every_turn(dtype: tf.DType, of_a_step: int) -> None:
    b = new_builder(dtype)
    x = b.fresh(mtf.Shape([("rows", 4)]), dtype)

    def terms(*turns: int) -> int:
        steps = [Step("step", [x], [x], tf.identity, n) for n in turns]
        return terms_of(Program(b.mesh.graph, nodes=[x], steps=steps))

    assert terms(3) == terms(1, 1, 1) == 2 * 3 * of_a_step  # there and back
    assert terms(2, 3) == terms(2) + terms(3)
    assert terms(0) == terms(1)  # the value still goes through


def test_turns_of_loops_inside_of_one_another_multiply() -> None:
    b = new_builder(tf.float32)
    tree = Tree(b, b.fresh(mtf.Shape([("rows", 4)]), tf.float32))
    piece = tree.piece(["scanned", "recomputed", "scanned"])
    inner, outer = (node.shape[0].size for node in tree.captured if node.shape.ndims and node.shape[0].name != "rows")
    assert piece.turns == inner * outer > 1


def test_no_loop_is_drawn_that_rounds_so_often_that_nothing_would_be_seen() -> None:
    """Of bfloat16: 16 turns there and back leave a bound of a quarter of the values, and 17 one that is wider."""

    def loop(b: Builder, turns: int) -> list[Node]:
        x = b.fresh(mtf.Shape([("rows", 4)]), tf.bfloat16)
        return b.step("loop", [x], x.tensor * 1.0, lambda p: p * 1.0, turns=turns)

    assert loop(new_builder(tf.bfloat16), 16)
    with pytest.raises(RejectedError):
        loop(new_builder(tf.bfloat16), 17)
    assert not new_builder(tf.bfloat16).attempt(lambda b: loop(b, 17))
