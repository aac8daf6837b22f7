"""Converts any element type to 32-bit words, bit for bit, for collectives that take few types.

A block of 5 bfloat16 numbers, 10 bytes, is padded with a zero and becomes 3 words. The receiver converts the 3 words to
6 numbers, and keeps the first 5. A float64 becomes 2 words.
"""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.mesh_impl.blocks import static_shape

_WORD = tf.int32
_WORD_BYTES = 4


def to_words(x: tf.Tensor) -> tf.Tensor:
    """Converts `[blocks, n]` of any type to `int32[blocks, m]`. Pads each block to whole words; else copies nothing."""
    blocks, n = static_shape(x)
    if x.dtype == tf.bool:
        x = tf.cast(x, tf.uint8)
    if x.dtype.size >= _WORD_BYTES:
        return tf.reshape(tf.bitcast(x, _WORD), [blocks, n * x.dtype.size // _WORD_BYTES])
    per_word = _WORD_BYTES // x.dtype.size
    missing = -n % per_word
    if missing:
        x = tf.concat([x, tf.zeros([blocks, missing], x.dtype)], axis=1)
    return tf.bitcast(tf.reshape(x, [blocks, -1, per_word]), _WORD)


def from_words(words: tf.Tensor, dtype: tf.DType, n: int) -> tf.Tensor:
    """Converts `int32[blocks, m]` back to `[blocks, n]` of a type."""
    blocks = static_shape(words)[0]
    stored = tf.uint8 if dtype == tf.bool else dtype
    if stored.size > _WORD_BYTES:
        words = tf.reshape(words, [blocks, n, stored.size // _WORD_BYTES])
    x = tf.bitcast(words, stored)
    if stored.size < _WORD_BYTES:
        padded = math.prod(static_shape(x)[1:])
        x = tf.reshape(x, [blocks, padded])
        x = x if padded == n else tf.slice(x, [0, 0], [blocks, n])
    return tf.cast(x, tf.bool) if dtype == tf.bool else x
