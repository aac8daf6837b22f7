"""Keys of many rows in one tensor. The bits that a row draws do not depend on the other rows.

A key is packed into one int64: word 0 is its high half. The decoding program and a server's programs use the same keys
for the same text, and so draw the same tokens.
"""

from __future__ import annotations

import functools
import math

import tensorflow as tf

from meshtf.random._xla_call import as_xla_call
from meshtf.random.compiled_segments import ROW
from meshtf.random.distributions import gumbel
from meshtf.random.keys import fold_in
from meshtf.random.threefry import threefry_2x32


def packed(key: tuple[int, int]) -> int:
    """Packs a key of Python integers into one signed 64-bit integer."""
    unsigned = key[0] << 32 | key[1]
    return unsigned - 2**64 if unsigned >> 63 else unsigned


def row_key(seed: int, *data: int | tuple[int, int]) -> int:
    """The packed key of a program's seed, into which counts and hashes are folded one after the other."""
    key = fold_in((0, 0), seed)
    for each in data:
        key = fold_in(key, each)
    assert isinstance(key, tuple)
    return packed(key)


@tf.autograph.experimental.do_not_convert
def folded(keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """`fold_in` of a count into each key: int64 [rows], both."""
    return _fold_segment(math.prod(keys.shape.as_list()))(keys, counts)


@tf.autograph.experimental.do_not_convert
def gumbel_of_rows(keys: tf.Tensor, begin: tf.Tensor, size: int) -> tf.Tensor:
    """Numbers of Gumbel's distribution at the positions begin, begin + 1, .. under each key: float32 [rows, size].

    Args:
      keys: int64 [rows].
      begin: int64 scalar.
      size: the number of positions.
    """
    (rows,) = keys.shape.as_list()
    padded = -(-size // ROW)
    return tf.reshape(_gumbel_segment(rows, padded)(keys, begin), [rows, padded * ROW])[:, :size]


@functools.cache
def _fold_segment(rows: int) -> tf.types.experimental.ConcreteFunction:
    """One compiled function for each number of rows."""

    def fold(keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        word0, word1 = threefry_2x32(*_words(keys), *_words(counts))
        high = tf.bitwise.left_shift(tf.cast(word0, tf.uint64), tf.constant(32, tf.uint64))
        return tf.bitcast(tf.bitwise.bitwise_or(high, tf.cast(word1, tf.uint64)), tf.int64)

    return as_xla_call(fold, [tf.TensorSpec([rows], tf.int64), tf.TensorSpec([rows], tf.int64)])


@functools.cache
def _gumbel_segment(rows: int, padded: int) -> tf.types.experimental.ConcreteFunction:
    """One compiled function for each shape. Rows are padded as in `compiled_segments`, so no scalar loop is needed."""

    def values(keys: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
        # XLA has no range of an unsigned type, and stores a range as a constant. Two short ranges make the whole one.
        row = tf.cast(tf.range(padded, dtype=tf.int32), tf.int64)[:, tf.newaxis] * ROW
        position = begin + row + tf.cast(tf.range(ROW, dtype=tf.int32), tf.int64)
        high, low = (word[tf.newaxis] for word in _words(position))
        key0, key1 = (word[:, tf.newaxis, tf.newaxis] for word in _words(keys))
        word0, word1 = threefry_2x32(key0, key1, high, low)
        return gumbel(word0, word1, tf.zeros([0], tf.float32), tf.float32)

    return as_xla_call(values, [tf.TensorSpec([rows], tf.int64), tf.TensorSpec([], tf.int64)])


def _words(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The high and the low 32 bits of int64 numbers."""
    unsigned = tf.bitcast(number, tf.uint64)
    high = tf.bitwise.right_shift(unsigned, tf.constant(32, tf.uint64))
    return tf.cast(high, tf.uint32), tf.cast(unsigned, tf.uint32)
