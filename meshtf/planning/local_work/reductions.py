"""The four reductions of an allreduce for element types that TensorFlow's Reduce does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import tensorflow as tf

from meshtf.errors import DtypeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.planning.local_work import extrema

Reduction: TypeAlias = Literal["add", "multiply", "max", "min"]

MERGE_OPS: dict[str, str] = {"add": "Add", "multiply": "Mul", "max": "Max", "min": "Min"}
NATIVE = (tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)

# Adding the lowest signed number, modulo 2 to the number of bits, keeps the order of unsigned numbers.
_SIGNED = {tf.uint32: tf.int32, tf.uint64: tf.int64}
_PLANES = {tf.complex64: tf.float32, tf.complex128: tf.float64}


def reduce_with(x: tf.Tensor, reduction: Reduction, reduce: Callable[[tf.Tensor, str], tf.Tensor]) -> tf.Tensor:
    """Reduces `x` of any type by `reduce(y, merge_op)`, which takes only the NATIVE types.

    Raises:
      DtypeError: for the maximum, minimum or product of complex numbers.
    """
    if x.dtype in NATIVE:
        return reduce(x, MERGE_OPS[reduction])
    if x.dtype == tf.bool:  # add and max mean "or", multiply and min mean "and"
        merge_op = "Max" if reduction in ("add", "max") else "Min"
        return tf.cast(reduce(tf.cast(x, tf.int32), merge_op), tf.bool)
    if x.dtype in _SIGNED:
        return _reduce_unsigned(x, reduction, reduce)
    if x.dtype in _PLANES and reduction == "add":
        return _reduce_complex_sum(x, reduce)
    if x.dtype.is_integer and x.dtype.size < tf.int32.size:  # a cast back keeps the low bits: sums wrap as they should
        return tf.cast(reduce(tf.cast(x, tf.int32), MERGE_OPS[reduction]), x.dtype)
    raise DtypeError(f"no all_reduce with reduction {reduction!r} for {x.dtype.name}")


def stacked_sum(x: tf.Tensor) -> tf.Tensor:
    """Sum over the first dimension ("or" for bool), in an order that depends on the shape alone.

    One `reduce_sum`: `AddN` adds in an order that depends on timing, and binary adds would grow with the stack.
    """
    if x.dtype == tf.bool:
        return tf.reduce_any(x, axis=0)
    return tf.cast(tf.reduce_sum(tf.cast(x, sum_dtype(x.dtype)), axis=0), x.dtype)


STACKED: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "Add": stacked_sum,
    "Mul": lambda x: tf.reduce_prod(x, axis=0),
    "Max": lambda x: extrema.reduce_max(x, axis=0),
    "Min": lambda x: extrema.reduce_min(x, axis=0),
}
"""The reductions over a first dimension, keyed by the name of TensorFlow's merge operation."""


def stacked_reduce(x: tf.Tensor, reduction: Reduction) -> tf.Tensor:
    """The reduction over the first dimension, of any type that TensorFlow orders or adds."""
    if x.dtype == tf.bool:
        return (tf.reduce_any if reduction in ("add", "max") else tf.reduce_all)(x, axis=0)
    return STACKED[MERGE_OPS[reduction]](x)


def _reduce_unsigned(x: tf.Tensor, reduction: Reduction, reduce: Callable[[tf.Tensor, str], tf.Tensor]) -> tf.Tensor:
    signed = _SIGNED[x.dtype]
    y = tf.bitcast(x, signed)
    if reduction in ("add", "multiply"):  # modulo 2 to the number of bits, signed or not
        return tf.bitcast(reduce(y, MERGE_OPS[reduction]), x.dtype)
    lowest = tf.constant(signed.min, signed)
    return tf.bitcast(
        tf.bitwise.bitwise_xor(reduce(tf.bitwise.bitwise_xor(y, lowest), MERGE_OPS[reduction]), lowest), x.dtype
    )


def _reduce_complex_sum(x: tf.Tensor, reduce: Callable[[tf.Tensor, str], tf.Tensor]) -> tf.Tensor:
    planes = reduce(tf.bitcast(x, _PLANES[x.dtype]), "Add")
    return tf.bitcast(planes, x.dtype)
