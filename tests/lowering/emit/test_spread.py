"""Operations done for many cores at once, against each core doing its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from meshtf.layout import Axes
from meshtf.lowering.emit.spread import NotSpreadError, Spread, Spreading
from meshtf.testing import assert_close

SIZES = {"x": 2, "one": 1, "y": 3}
AXES: list[Axes] = [(), ("x",), ("y",), ("x", "one", "y")]
PLACES = [[1, 2, 0], [0, 0, 1]]

CASES: dict[str, tuple[Callable[..., Any], list[list[int]]]] = {
    "broadcasting": (lambda a, b: a * tf.exp(b) + a, [[2, 4], [4]]),
    "a choice": (lambda a, b, c: tf.where(a > 0, b, c), [[2, 1], [1, 4], [2, 4]]),
    "a choice of equal shapes": (lambda a, b: tf.raw_ops.Select(condition=a > b, x=a, y=b), [[2, 4], [2, 4]]),
    "softmax": (tf.nn.softmax, [[2, 4]]),
    "clipped": (lambda a: tf.clip_by_value(a, -0.5, 0.5), [[2, 4]]),
    "sums": (lambda a: [tf.reduce_sum(a, -1), tf.reduce_max(a, [0, 2], keepdims=True), tf.reduce_mean(a)], [[2, 3, 4]]),
    "places": (lambda a: [tf.argmax(a, 1), tf.argmin(a, -1, tf.int32)], [[2, 3, 4]]),
    "in other sizes": (lambda a: [tf.reshape(a, [3, 8]), a[:, tf.newaxis], tf.squeeze(a[:, :1], 1)], [[2, 3, 4]]),
    "transposed": (lambda a: tf.transpose(a, [2, 0, 1]), [[2, 3, 4]]),
    "joined": (lambda a, b: [tf.concat([a, b, a], -1), tf.stack([a, b], -2)], [[2, 4], [2, 4]]),
    "cut": (lambda a: [*tf.unstack(a, axis=-1), *tf.split(a, 2, 1), *tf.split(a, [1, 3], -1)], [[2, 4]]),
    "sliced": (lambda a: [tf.slice(a, [0, 1, 0], [2, -1, 2]), a[1, ..., ::2, tf.newaxis], a[:, 1:, -1]], [[2, 3, 4]]),
    "repeated": (lambda a: [tf.tile(a, [1, 2]), tf.broadcast_to(a, [3, 2, 4])], [[2, 4]]),
    "filled": (lambda a: tf.fill([2, 3], a), [[]]),
    "of constants": (lambda a: tf.cast(tf.range(4), tf.float32) + a, [[]]),
    "a product": (lambda a, b: tf.matmul(a, b, transpose_a=True), [[3, 2], [3, 4]]),
    "a product with a transposed one": (lambda a, b: tf.matmul(a, b, transpose_b=True), [[2, 3], [4, 3]]),
    "products": (lambda a, b: tf.matmul(a, b, transpose_b=True), [[2, 2, 3], [2, 4, 3]]),
    "products with one matrix": (tf.matmul, [[2, 2, 3], [1, 3, 4]]),
    "a named product": (lambda a, b: tf.einsum("abc,bd->dac", a, b), [[2, 3, 4], [3, 5]]),
    "a trace": (lambda a: tf.einsum("ab->ba", a), [[2, 3]]),
    "gathered": (lambda a, b: tf.gather_nd(a, tf.cast(b, tf.int32), bad_indices_policy="IGNORE"), [[2, 3, 4], [5, 2]]),
    "the largest": (lambda a: [*tf.math.top_k(a, 2)], [[2, 3, 4]]),
    "rows by number": (lambda a: [tf.gather(a, [2, 0], axis=1), tf.gather(a, [[1, 0]])], [[2, 3, 4]]),
    "the largest of another": (lambda a: tf.gather(a, tf.math.top_k(a - 1.0, 2)[1], batch_dims=2, axis=2), [[2, 3, 4]]),
    "scattered": (lambda a, b: tf.tensor_scatter_nd_update(a, PLACES, b), [[2, 3, 4], [2]]),
}


def done(
    f: Callable[..., Any], slices: Sequence[np.ndarray], axes: Sequence[Axes]
) -> tuple[list[np.ndarray], list[list[int]]]:
    """What cores make, [x, one, y, ..], of slices [sizes of the axes.., ..]; and how much of it there is."""
    whole = list(SIZES)
    shapes = [x.shape[len(own) :] for x, own in zip(slices, axes, strict=True)]
    with FuncGraph("kernel").as_default() as graph:
        given = [tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes]
        results = tf.nest.flatten(f(*given))

    @tf.function(autograph=False)
    def run(*xs: tf.Tensor) -> list[tf.Tensor]:
        spreading = Spreading(SIZES)
        made = {a.ref(): Spread(own, x) for a, own, x in zip(given, axes, xs, strict=True)}
        for operation in graph.get_operations():
            if operation.type != "Placeholder":
                found = spreading.apply(operation, [made[x.ref()] for x in operation.inputs])
                made.update(zip((x.ref() for x in operation.outputs), found, strict=True))
        sizes.extend(made[x.ref()].x.shape.as_list() for x in results)
        return [spreading.whole(made[x.ref()], tuple(whole)) for x in results]

    sizes: list[list[int]] = []
    return [x.numpy() for x in run(*slices)], sizes


@pytest.mark.parametrize("case", CASES)
def test_each_core_has_what_it_would_make_by_itself(case: str) -> None:
    f, shapes = CASES[case]
    rng = np.random.default_rng(0)
    for axes in itertools.product(AXES, repeat=len(shapes)):
        sizes = [[SIZES[a] for a in own] for own in axes]
        slices = [rng.normal(size=[*s, *n]).astype(np.float32) for s, n in zip(sizes, shapes, strict=True)]
        found, held = done(f, slices, axes)
        for place in np.ndindex(*SIZES.values()):
            here = dict(zip(SIZES, place, strict=True))
            own = [tf.constant(x[tuple(here[a] for a in along)]) for x, along in zip(slices, axes, strict=True)]
            for x, y in zip(found, tf.nest.flatten(f(*own)), strict=True):
                assert_close(x[place], y.numpy(), terms=12)
        differs = {*itertools.chain(*axes)}
        for n, x in zip(held, found, strict=True):  # of what cores make alike there is one
            assert n == [SIZES[a] for a in SIZES if a in differs] + list(x.shape[3:])


def test_what_begins_elsewhere_on_each_core_is_not_cut_from_one_tensor() -> None:
    row = np.arange(4, dtype=np.float32)
    with pytest.raises(NotSpreadError):
        done(lambda a, b: tf.slice(a, [tf.cast(b, tf.int32)], [1]), [row, np.float32([0, 1])], [(), ("x",)])


def test_what_cores_have_alike_is_not_copied_for_each_to_be_taken_from() -> None:
    table, rows = np.ones([4, 2], np.float32), np.float32([0, 1])
    with pytest.raises(NotSpreadError):
        done(lambda a, b: tf.gather(a, tf.cast(b, tf.int32)), [table, rows], [(), ("x",)])


def test_what_nobody_has_a_rule_for_is_not_spread() -> None:
    with pytest.raises(NotSpreadError):
        done(lambda a: tf.cumsum(a), [np.ones([2, 4], np.float32)], [("x",)])


def equations(size: int) -> list[str]:
    """Of a product of [x, 1, size] and [y, size, size]."""
    with FuncGraph("kernel").as_default():
        given = [tf.compat.v1.placeholder(tf.float32, shape) for shape in ([1, size], [size, size])]
        operation = tf.matmul(*given).op
    with tf.Graph().as_default() as graph:
        factors = [tf.zeros([2, 1, size]), tf.zeros([3, size, size])]
        Spreading(SIZES).apply(operation, [Spread((a,), x) for a, x in zip("xy", factors, strict=True)])
    return [o.get_attr("equation").decode() for o in graph.get_operations() if o.type == "Einsum"]


def test_a_small_factor_is_there_for_each_core_that_has_another_large_one() -> None:
    """So the large one is not put in another order."""
    assert equations(8) == ["abik,bkj->abij"]
    assert equations(1) == ["aik,bkj->abij"]
