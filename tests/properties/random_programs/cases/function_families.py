"""Cases of elementwise functions that are drawn together: all of a family on one tensor, in one step."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError, wide_dtype
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread

Reference = Callable[[tf.Tensor], tf.Tensor]
Distance = Callable[[np.ndarray], np.ndarray]


def _from_corners(*corners: float) -> Distance:
    """The distance of a number to the nearest corner."""
    return lambda x: np.min([np.abs(x - corner) for corner in corners], axis=0)


def _hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu6(x + 3) / 6


# The functions of a family with TensorFlow's for each, the range of values, and the distance to a corner of any.
# Near a pole, errors of x grow by more than the slopes at its end: the ranges keep second derivatives below about 30.
_FAMILIES: tuple[tuple[dict[str, Reference], float, float, Distance | None], ...] = (
    ({"atan": tf.atan, "asinh": tf.asinh}, -3, 3, None),
    ({"sinh": tf.sinh, "cosh": tf.cosh, "exp2": lambda x: tf.exp(x * math.log(2))}, -2, 2, None),
    ({"tan": tf.tan, "asin": tf.asin, "acos": tf.acos, "atanh": tf.atanh, "erfinv": tf.math.erfinv}, -0.8, 0.8, None),
    (
        {
            "log2": lambda x: tf.math.log(x) / math.log(2),
            "log10": lambda x: tf.math.log(x) / math.log(10),
            "lgamma": tf.math.lgamma,
            "digamma": tf.math.digamma,
        },
        0.5, 4, None,
    ),
    ({"acosh": tf.acosh}, 1.3, 4, None),
    (
        {
            "silu": lambda x: x * tf.sigmoid(x),
            "mish": lambda x: x * tf.tanh(tf.math.softplus(x)),
            "log_sigmoid": tf.math.log_sigmoid,
        },
        -3, 3, None,
    ),
    (
        {"celu": lambda x: tf.where(x > 0, x, tf.math.expm1(x)), "soft_sign": lambda x: x / (1 + tf.abs(x))},
        -2, 2, _from_corners(0),
    ),
    (
        {
            "relu6": tf.nn.relu6,
            "hard_tanh": lambda x: tf.clip_by_value(x, -1, 1),
            "hard_sigmoid": _hard_sigmoid,
        },
        -4, 7, _from_corners(-3, -1, 0, 1, 3, 6),
    ),
    ({"hard_swish": lambda x: x * _hard_sigmoid(x)}, -4, 4, _from_corners(-3, 3)),
)  # fmt: skip


def _gap(node: Node) -> float:
    """How near to a jump numbers may lie, exact ones too: functions of several steps round before they jump."""
    return 0.05 if node.tensor.dtype.size == 2 else 1e-3


def family(functions: dict[str, Reference], low: float, high: float, corners: Distance | None) -> Case:
    def fits(node: Node) -> bool:
        x, gap = node.array, _gap(node)
        return bool(np.all((x >= low) & (x <= high))) and (corners is None or bool(np.all(corners(x) > gap)))

    def case(b: Builder) -> None:
        if b.dtype.is_complex:
            raise RejectedError
        x = b.pick(low=low, high=high, accepts=fits)
        if not fits(x):
            raise RejectedError
        z = [getattr(mtf, name)(x.tensor) for name in functions]
        b.step(" ".join(functions), [x], z, lambda p: [reference(p) for reference in functions.values()])

    return case


def _spread_pair(x: Node, y: Node, shape: mtf.Shape) -> tuple[np.ndarray, np.ndarray]:
    return spread(x.value, x.names, shape).numpy(), spread(y.value, y.names, shape).numpy()


def _pair(b: Builder, dtype: tf.DType, *, high: float = 1.5) -> tuple[Node, Node, mtf.Shape]:
    """Two tensors, and the dimensions that they have together, in any order."""
    x, y = b.pick(dtype, high=high), b.pick(dtype, high=high)
    dims = list(b.union([x.shape, y.shape]))
    b.rng.shuffle(dims)
    shape = mtf.Shape(dims)
    if shape.size > 1500:
        raise RejectedError
    return x, y, shape


_OF_TWO: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "atan2": tf.atan2,
    "hypot": lambda x, y: tf.sqrt(x * x + y * y),
    "logaddexp": lambda x, y: y + tf.math.softplus(x - y),
}


def of_two(*names: str) -> Case:
    """Of points that are not so near to (0, 0) that their angles amplify roundings."""

    def case(b: Builder) -> None:
        if b.dtype.is_complex:
            raise RejectedError
        x, y, shape = _pair(b, b.dtype, high=2)
        if not np.all(np.hypot(*_spread_pair(x, y, shape)) > 0.3):
            raise RejectedError
        z = [getattr(mtf, name)(x.tensor, y.tensor, shape) for name in names]

        def reference(p: tf.Tensor, q: tf.Tensor) -> list[tf.Tensor]:
            p, q = spread(p, x.names, shape), spread(q, y.names, shape)
            return [_OF_TWO[name](p, q) for name in names]

        b.step(f"{' '.join(names)}[output {shape}]", [x, y], z, reference)

    return case


def is_close(b: Builder) -> None:
    x, y, shape = _pair(b, b.dtype if b.chance(0.8) else b.integer())
    p, q = _spread_pair(x, y, shape)
    if not np.all(np.abs(np.abs(p - q) - 0.25) > _gap(x)):
        raise RejectedError
    z = mtf.is_close(x.tensor, y.tensor, 0.0, 0.25, output_shape=shape)

    def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        distance = tf.abs(spread(p, x.names, shape) - spread(q, y.names, shape))
        return tf.cast(distance, tf.float64) <= 0.25

    b.step(f"is_close[output {shape}]", [x, y], z, reference)


def bitwise(b: Builder) -> None:
    """Shifts are also by negative numbers and by more than the width, which leave no bit."""
    dtype = b.integer()
    x, y, shape = _pair(b, dtype, high=9)
    names = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
    z = [mtf.bitwise_not(x.tensor), *(getattr(mtf, name)(x.tensor, y.tensor, shape) for name in names)]
    width = dtype.size * 8

    def reference(p: tf.Tensor, q: tf.Tensor) -> list[tf.Tensor]:
        inverted = (dtype.max if dtype.is_unsigned and width < 64 else -1) - p
        p, q = spread(p, x.names, shape), spread(q, y.names, shape)
        is_within = (q >= 0) & (q < width)
        up = tf.where(is_within, tf.bitwise.left_shift(p, tf.where(is_within, q, 0)), 0)
        down = tf.bitwise.right_shift(p, tf.where(is_within, q, 63))
        both = tf.bitwise.bitwise_and(p, q), tf.bitwise.bitwise_or(p, q), tf.bitwise.bitwise_xor(p, q)
        return [inverted, *both, up, down]

    b.step(f"bitwise_not, bitwise_and, or, xor, shifts[output {shape}]", [x, y], z, reference)


def non_finite(b: Builder) -> None:
    """NaN and infinities at random places, found, and replaced by numbers that no gradient flows from."""
    x, is_bad, is_infinite = b.pick(), b.pick(tf.bool), b.pick(tf.bool)
    shape = b.union([x.shape, is_bad.shape, is_infinite.shape])
    if b.dtype.is_complex or shape.size > 1500:
        raise RejectedError
    y = mtf.where(is_infinite.tensor, -math.inf, mtf.where(is_bad.tensor, math.nan, x.tensor), shape)
    z = [mtf.is_nan(y), mtf.is_inf(y), mtf.nan_to_num(y, nan=0.5, neginf=-2.0)]

    def reference(p: tf.Tensor, bad: tf.Tensor, infinite: tf.Tensor) -> list[tf.Tensor]:
        bad, infinite = spread(bad, is_bad.names, shape), spread(infinite, is_infinite.names, shape)
        half, two = (tf.constant(value, wide_dtype(b.dtype)) for value in (0.5, -2.0))
        found = tf.where(infinite, two, tf.where(bad, half, spread(p, x.names, shape)))
        return [bad & ~infinite, infinite, found]

    b.step("is_nan is_inf nan_to_num", [x, is_bad, is_infinite], z, reference, is_exact=True)


OF_REAL_NUMBERS: dict[str, Case] = {
    **{" ".join(functions): family(functions, *more) for functions, *more in _FAMILIES},
    "atan2 hypot": of_two("atan2", "hypot"),
    "logaddexp": of_two("logaddexp"),
}
"""Cases of differentiable functions of one element, or of two."""

CASES: dict[str, Case] = {
    **OF_REAL_NUMBERS,
    "is_close": is_close,
    "bitwise_not bitwise_and bitwise_or bitwise_xor left_shift right_shift": bitwise,
    "is_nan is_inf nan_to_num": non_finite,
}
