"""Cases of the elementwise operations, from tables of TensorFlow's own functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError, is_clear_of, wide_dtype
from tests.properties.random_programs.program import Node, spread

Case = Callable[[Builder], Any]

_NEAR_ZERO = np.abs


def _near_integer(x: np.ndarray) -> np.ndarray:
    return np.abs(x - np.round(x))


def _near_half(x: np.ndarray) -> np.ndarray:
    return np.abs(x - np.floor(x) - 0.5)


# name -> TensorFlow's function, range of values, distance to a kink or jump of it or of its derivatives
_UNARY: dict[str, tuple[Callable[..., Any], float, float, Callable[[np.ndarray], np.ndarray] | None]] = {
    "exp": (tf.exp, -2, 2, None),
    "expm1": (tf.math.expm1, -2, 2, None),
    "log": (tf.math.log, 0.2, 3, None),
    "log1p": (tf.math.log1p, -0.6, 2, None),
    "sqrt": (tf.sqrt, 0.2, 4, None),
    "rsqrt": (tf.math.rsqrt, 0.3, 4, None),
    "square": (tf.square, -2, 2, None),
    "reciprocal": (tf.math.reciprocal, 0.4, 3, None),
    "sin": (tf.sin, -3, 3, None),
    "cos": (tf.cos, -3, 3, None),
    "tanh": (tf.tanh, -3, 3, None),
    "sigmoid": (tf.sigmoid, -4, 4, None),
    "softplus": (tf.math.softplus, -4, 4, None),
    "erf": (tf.math.erf, -2, 2, None),
    "relu": (tf.nn.relu, -2, 2, _NEAR_ZERO),
    "squared_relu": (lambda x: tf.square(tf.nn.relu(x)), -2, 2, _NEAR_ZERO),
    "elu": (tf.nn.elu, -2, 2, _NEAR_ZERO),
    "selu": (tf.nn.selu, -2, 2, _NEAR_ZERO),
    "abs": (tf.abs, -2, 2, _NEAR_ZERO),
    "sign": (tf.sign, -2, 2, _NEAR_ZERO),
    "floor": (tf.floor, -3, 3, _near_integer),
    "ceil": (tf.math.ceil, -3, 3, _near_integer),
    "round": (tf.round, -3, 3, _near_half),
    "leaky_relu": (tf.nn.leaky_relu, -2, 2, _NEAR_ZERO),
    "swish": (lambda x: x * tf.sigmoid(x), -3, 3, None),
    # TensorFlow's own gelu rounds its constants to float32.
    "gelu": (lambda x: 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), -2, 2, None),
    "negative": (tf.negative, -2, 2, None),
    "identity": (tf.identity, -2, 2, None),
    "stop_gradient": (tf.stop_gradient, -2, 2, None),
    "is_finite": (lambda x: tf.math.is_finite(tf.abs(x)), -2, 2, None),
}
_EXACT = {"relu", "abs", "sign", "floor", "ceil", "round", "negative", "identity", "stop_gradient"}
_OF_MAGNITUDES = {"abs", "sign"}
"""Of complex numbers these take a root."""


def unary(name: str) -> Case:
    reference, low, high, distance = _UNARY[name]

    def fits(node: Node) -> bool:
        if node.tensor.dtype.is_complex and distance in (_near_integer, _near_half):
            return False
        parts = [node.array.real, node.array.imag] if np.iscomplexobj(node.array) else [node.array]
        inside = all(np.all((x >= low) & (x <= (high if len(parts) == 1 else 1.0))) for x in parts)
        return inside and (distance is None or is_clear_of(node, distance))

    def case(b: Builder) -> None:
        x = b.pick(low=low, high=high, accepts=fits)
        if b.dtype.is_complex and not fits(x):
            raise RejectedError
        moves = name in _EXACT and not (name in _OF_MAGNITUDES and x.tensor.dtype.is_complex)
        b.step(name, [x], getattr(mtf, name)(x.tensor), reference, is_exact=moves)

    return case


def _float_quotient_is_clear(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.all(np.abs(y) > 0.3)) and bool(np.all(_near_integer(x / y) > 1e-3))


def _is_far_apart(x: np.ndarray, y: np.ndarray) -> bool:
    return bool(np.all(np.abs(x - y) > 1e-3))


_ARITHMETIC = {"add": tf.add, "sub": tf.subtract, "multiply": tf.multiply}
_ORDER = {
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "less": tf.less,
    "less_equal": tf.less_equal,
    "greater": tf.greater,
    "greater_equal": tf.greater_equal,
    "equal": tf.equal,
    "not_equal": tf.not_equal,
}
_QUOTIENTS = {"floordiv": tf.math.floordiv, "mod": tf.math.floormod}
_LOGICAL = {"logical_and": tf.logical_and, "logical_or": tf.logical_or, "logical_xor": tf.math.logical_xor}
_FLOATING = {"divide": tf.divide, "pow": tf.pow}
_BINARY: dict[str, Callable[..., Any]] = {**_ARITHMETIC, **_ORDER, **_QUOTIENTS, **_LOGICAL, **_FLOATING}
_INTEGER = {**_ARITHMETIC, **_ORDER, **_QUOTIENTS}


def _dtype_of_operands(b: Builder, name: str) -> tf.DType:
    if name in _LOGICAL:
        return tf.bool
    if name in _INTEGER and b.chance(0.2):
        return b.integer()
    return b.dtype


def _second_range(name: str, dtype: tf.DType) -> tuple[float, float]:
    if name in _QUOTIENTS and dtype.is_integer:
        return 1, 4
    return (0.5, 2.5) if name in ("divide", "pow", *_QUOTIENTS) else (-1.5, 1.5)


def _check_operands(name: str, x: np.ndarray, y: np.ndarray, is_exact: bool) -> None:
    bad = name == "divide" and not np.all(np.abs(y) > 0.3)
    bad |= name == "pow" and not (np.all(x > 0.1) and np.all(np.abs(y) < 4))
    if name in _QUOTIENTS:
        bad |= not np.all(y) if x.dtype.kind == "i" else not _float_quotient_is_clear(x, y)
    bad |= name in _ORDER and not is_exact and not _is_far_apart(x, y)
    if bad:
        raise RejectedError


def binary(name: str) -> Case:
    """Two tensors that broadcast by name, sometimes over dimensions that neither has."""
    reference = _BINARY[name]

    def case(b: Builder) -> None:
        dtype = _dtype_of_operands(b, name)
        low, high = _second_range(name, dtype)
        x = b.pick(dtype, low=0.3 if name == "pow" else -1.5, high=2.0)
        y = b.pick(dtype, low=low, high=high)
        shape = b.union([x.shape, y.shape])
        given = None
        if b.chance(0.3):
            dims = [*shape, *(d for d in b.dims[:1] if not shape.has(d.name) and b.chance(0.5))]
            b.rng.shuffle(dims)
            given = mtf.Shape(dims)
        if (given or shape).size > 1500:
            raise RejectedError
        is_exact = x.is_exact and y.is_exact
        _check_operands(
            name, spread(x.value, x.names, shape).numpy(), spread(y.value, y.names, shape).numpy(), is_exact
        )
        z = getattr(mtf, name)(x.tensor, y.tensor, given)
        b.step(
            f"{name}[output {given}]" if given else name,
            [x, y],
            z,
            lambda p, q: reference(spread(p, x.names, z.shape), spread(q, y.names, z.shape)),
            is_exact=name in _ORDER,
        )

    return case


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def scalar_form(symbol: str) -> Case:
    """A Python scalar on either side of an operator."""
    function = _OPERATORS[symbol]

    def fits(node: Node, scalar: float, is_left: bool) -> bool:
        x = node.array
        pair = (np.full_like(x, scalar), x) if is_left else (x, np.full_like(x, scalar))
        if symbol in ("/", "**"):
            return bool(np.all(x > 0.3) and np.all(x < 3))
        if symbol in ("//", "%"):
            return _float_quotient_is_clear(*pair)
        return not symbol.startswith(("<", ">")) or _is_far_apart(*pair)

    def case(b: Builder) -> None:
        scalar, is_left = b.rng.choice([0.5, 1.75, 2.0, 3]), b.chance(0.5)  # exact in every dtype
        x = b.pick(low=0.4, high=2.0, accepts=lambda n: fits(n, scalar, is_left))
        if not fits(x, scalar, is_left):
            raise RejectedError
        apply = (lambda v: function(scalar, v)) if is_left else (lambda v: function(v, scalar))
        text = f"{scalar} {symbol} x" if is_left else f"x {symbol} {scalar}"
        b.step(text, [x], apply(x.tensor), lambda p: apply(p))

    return case


def integer_unary(b: Builder) -> None:
    name = b.rng.choice(["square", "relu", "abs", "sign", "negative"])
    x = b.pick(b.integer(), low=-4, high=4)
    b.step(name, [x], getattr(mtf, name)(x.tensor), _UNARY[name][0])


def logical_not(b: Builder) -> None:
    x = b.pick(tf.bool)
    b.step("logical_not", [x], mtf.logical_not(x.tensor), tf.logical_not, is_exact=True)


def exact_gelu(b: Builder) -> None:
    x = b.pick(accepts=lambda n: bool(np.all(np.abs(n.array) < 3)))
    z = mtf.gelu(x.tensor, approximate=False)
    # TensorFlow's own rounds the square root of 2 to float32.
    b.step("gelu[approximate=False]", [x], z, lambda p: 0.5 * p * (1 + tf.math.erf(p * np.sqrt(0.5))))


def where(b: Builder) -> None:
    c, x, y = b.pick(tf.bool), b.pick(), b.pick()
    if b.union([c.shape, x.shape, y.shape]).size > 1500:
        raise RejectedError
    kind = b.rng.randrange(3)
    if kind == 0:
        z = mtf.where(c.tensor, x.tensor, y.tensor)
        b.step(
            "where",
            [c, x, y],
            z,
            lambda r, p, q: tf.where(*(spread(v, n.names, z.shape) for v, n in ((r, c), (p, x), (q, y)))),
            is_exact=True,
        )
        return
    pair = (x.tensor, 0.25) if kind == 1 else (0.25, x.tensor)
    z = mtf.where(c.tensor, *pair)

    def reference(r: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        p, q = spread(p, x.names, z.shape), tf.constant(0.25, p.dtype)
        return tf.where(spread(r, c.names, z.shape), *((p, q) if kind == 1 else (q, p)))

    b.step(f"where[scalar {kind}]", [c, x], z, reference, is_exact=True)


def cast(b: Builder) -> None:
    x = b.pick(b.rng.choice([tf.bool, b.integer()]), low=-3, high=3)
    wide, z = wide_dtype(b.dtype), mtf.cast(x.tensor, b.dtype)
    b.step(f"cast[{b.dtype.name}]", [x], z, lambda p: tf.cast(p, wide), is_exact=True)


def cast_to_integer(b: Builder) -> None:
    if b.dtype.is_complex:
        raise RejectedError
    x = b.pick(accepts=lambda n: is_clear_of(n, _near_integer))
    b.step("to_int32", [x], mtf.to_int32(x.tensor), lambda p: tf.cast(p, tf.int64), is_exact=True)


def cast_and_back(b: Builder) -> None:
    x = b.pick(dtype=b.dtype if b.dtype != tf.float64 else tf.float32)
    wider = wide_dtype(b.dtype)
    y = mtf.cast(mtf.cast(x.tensor, wider), x.tensor.dtype)
    b.step(f"cast[{wider.name} and back]", [x], y, tf.identity, is_exact=True)


def to_float(b: Builder) -> None:
    x = b.pick(tf.int32, low=-3, high=3)
    b.step("to_float", [x], mtf.to_float(x.tensor), lambda p: tf.cast(p, tf.float64), is_exact=True)


def to_bfloat16(b: Builder) -> None:
    x = b.pick(tf.int32, low=-3, high=3)
    b.step("to_bfloat16", [x], mtf.to_bfloat16(x.tensor), lambda p: tf.cast(p, tf.float64), is_exact=True)


def clip_by_value(b: Builder) -> None:
    x = b.pick(accepts=lambda n: is_clear_of(n, lambda v: np.abs(np.abs(v) - 0.5)))
    z = mtf.clip_by_value(x.tensor, -0.5, 0.5)
    b.step("clip_by_value[-0.5, 0.5]", [x], z, lambda p: tf.minimum(tf.maximum(p, -0.5), 0.5), is_exact=True)


def add_n(b: Builder) -> None:
    x = b.pick()
    others = [b.fresh(x.shape, b.dtype) for _ in range(b.rng.randrange(1, 3))]
    z = mtf.add_n([x.tensor, *(o.tensor for o in others)])
    b.step("add_n", [x, *others], z, lambda *p: sum(p[1:], p[0]))


CASES: dict[str, Case] = {
    **{name: unary(name) for name in _UNARY},
    **{name: binary(name) for name in _BINARY},
    **{f"scalar {symbol}": scalar_form(symbol) for symbol in _OPERATORS},
    "integer unary": integer_unary,
    "logical_not": logical_not,
    "exact gelu": exact_gelu,
    "where": where,
    "cast": cast,
    "to_int32": cast_to_integer,
    "cast and back": cast_and_back,
    "to_float": to_float,
    "to_bfloat16": to_bfloat16,
    "clip_by_value": clip_by_value,
    "add_n": add_n,
}
