"""Integers that overflow are what NumPy says, compiled by XLA or not: it takes squares for non-negative."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret

Ours, NumPys = Callable[[mtf.Tensor], mtf.Tensor], Callable[[np.ndarray], Any]

DTYPES = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
TURNS = 40  # enough for the loop to be compiled

# Of each, XLA takes the result for non-negative: (ours, NumPy's, whether unsigned integers have it).
SOURCES: dict[str, tuple[Ours, NumPys, bool]] = {
    "x * x": (lambda x: x * x, lambda x: x * x, True),
    "square": (mtf.square, lambda x: x * x, True),
    "einsum": (lambda x: mtf.einsum([x, x], output_shape=x.shape), lambda x: x * x, True),
    "x ** 2": (lambda x: x**2, lambda x: x * x, False),
    "abs": (mtf.abs, np.abs, True),
    "product": (lambda x: mtf.reduce_prod(mtf.stack([x, x], "two"), output_shape=x.shape), lambda x: x * x, True),
    "maximum": (lambda x: mtf.maximum(x * x, x), lambda x: np.maximum(x * x, x), True),
    "where": (lambda x: mtf.where(x > 3, x * x, mtf.abs(x)), lambda x: np.where(x > 3, x * x, np.abs(x)), True),
}
# And of these it makes something else then.
SINKS: dict[str, tuple[Ours, NumPys]] = {
    "abs": (mtf.abs, np.abs),
    "sign": (mtf.sign, np.sign),
    "< 0": (lambda y: mtf.cast(y < 0, y.dtype), lambda y: (y < 0).astype(y.dtype)),
    ">= 0": (lambda y: mtf.cast(y >= 0, y.dtype), lambda y: (y >= 0).astype(y.dtype)),
    "max(0)": (lambda y: mtf.maximum(y, 0), lambda y: np.maximum(y, 0)),
    "// 3": (lambda y: y // 3, lambda y: y // y.dtype.type(3)),
    "// 4": (lambda y: y // 4, lambda y: y // y.dtype.type(4)),
    "% 3": (lambda y: y % 3, lambda y: y % y.dtype.type(3)),
}


def numbers(dtype: tf.DType) -> np.ndarray:
    """The limits, small numbers, and others, of which squares overflow."""
    limits = np.iinfo(dtype.as_numpy_dtype)
    drawn = np.random.default_rng(0).integers(limits.min, limits.max, 40, dtype.as_numpy_dtype, endpoint=True)
    return np.concatenate([drawn, np.array([limits.min, limits.min + 1, limits.max, 0, 1, 2, 7], drawn.dtype)])


def cases(dtype: tf.DType) -> list[tuple[str, str]]:
    """Of int8 each source with each sink; of the others each source with two."""
    every = itertools.product(enumerate(SOURCES), enumerate(SINKS))
    return [
        (source, sink)
        for (i, source), (j, sink) in every
        if (SOURCES[source][2] or not dtype.is_unsigned) and (dtype == tf.int8 or (i + j) % 4 == 0)
    ]


def every_case(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.stack([SINKS[sink][0](SOURCES[source][0](x)) for source, sink in cases(x.dtype)], "cases")


def all_at_once(**xs: mtf.Tensor) -> list[mtf.Tensor]:
    return [every_case(x) for x in xs.values()]


def looped(**xs: mtf.Tensor) -> list[mtf.Tensor]:
    """All cases of all dtypes, in a loop that goes round once."""
    start = [mtf.zeros(x.mesh, [("cases", len(cases(x.dtype))), *x.shape], x.dtype) for x in xs.values()]

    def body(turn: mtf.Tensor, *carried: mtf.Tensor) -> list[mtf.Tensor]:
        given = carried[: len(xs)]
        return [turn + 1, *given, *map(every_case, given)]

    inputs = [mtf.zeros(start[0].mesh, [], tf.int32), *xs.values(), *start]
    results = mtf.while_loop(lambda turn, *_: mtf.less(turn, 1), body, inputs, maximum_iterations=TURNS, compiled=True)
    return results[1 + len(xs) :]


def check(results: Sequence[np.ndarray], arrays: Mapping[str, np.ndarray]) -> None:
    for (name, array), result in zip(arrays.items(), results, strict=True):
        for (source, sink), found in zip(cases(tf.as_dtype(name)), result, strict=True):
            with warnings.catch_warnings(action="ignore"):  # NumPy's of the absolute value of the lowest
                expected = SINKS[sink][1](SOURCES[source][1](array))
            np.testing.assert_array_equal(found, expected, f"{sink} of {source} of {name}")


def test_products_that_overflow_are_those_of_numpy() -> None:
    arrays = {dtype.name: numbers(dtype) for dtype in DTYPES}
    inputs = {name: (f"n:{array.size}", array) for name, array in arrays.items()}
    check(interpret(all_at_once, inputs, "one:1").results, arrays)


@pytest.mark.parametrize("dtypes", [[tf.int8, tf.int32], pytest.param(DTYPES, marks=pytest.mark.long)], ids=len)
def test_so_are_those_that_xla_compiles(dtypes: Sequence[tf.DType]) -> None:
    arrays = {dtype.name: numbers(dtype) for dtype in dtypes}
    specs = {d.name: mtf.TensorSpec([("n", arrays[d.name].size)], d) for d in dtypes}
    step = mtf.function(looped, mtf.SpmdMeshImpl("one:1", ""), inputs=specs)
    assert [loop.refusal for loop in step.report().loops] == [""]
    check([result.numpy() for result in step(**arrays)], arrays)
