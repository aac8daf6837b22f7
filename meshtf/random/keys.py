"""Keys of random operations: a seed, folded with names and with counts (the step, the iteration of a loop)."""

from __future__ import annotations

import functools
import hashlib
from typing import TypeAlias

import tensorflow as tf

from meshtf.random._xla_call import as_xla_call
from meshtf.random.threefry import WORD, threefry_2x32, threefry_2x32_of_ints

Key: TypeAlias = tf.Tensor | tuple[int, int]
"""A uint32 [2] tensor, or two Python integers below 2**32 if the key is known while the program is built."""

Data: TypeAlias = tf.Tensor | tf.Variable | tuple[int, int] | int
"""The data that is folded into a key: an integer scalar tensor, an int of 64 bits (signed or not), or the pair of a
hash.
"""


def stable_hash(text: str) -> tuple[int, int]:
    """Two 32-bit words that depend on `text` alone: the same in every process (Python's own `hash` is not)."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")


@tf.autograph.experimental.do_not_convert
def fold_in(key: Key, data: Data) -> Key:
    """The key for `data` under `key`: Threefry of data's high and low word.

    For Python integers, the result is a pair of Python integers, without any TensorFlow op. If either is a tensor, the
    result is a uint32 [2] tensor. A negative number counts as its two's complement in 64 bits, both as a Python int and
    as a tensor.
    """
    if isinstance(key, tuple) and isinstance(data, int | tuple):
        (key_high, key_low), (high, low) = key, split_words(data)
        return threefry_2x32_of_ints(key_high, key_low, high, low)
    keys = key_tensor(key)
    return _fold_segment(tuple(keys.shape))(keys, _data_tensor(data))


def key_tensor(key: Key) -> tf.Tensor:
    """The key as a uint32 [2] tensor."""
    return tf.constant(key, tf.uint32) if isinstance(key, tuple) else key


def split_words(data: int | tuple[int, int]) -> tuple[int, int]:
    """The high and the low 32 bits of an integer of -2**63 to 2**64 - 1; a pair is returned as it is."""
    if isinstance(data, tuple):
        return data
    if not -(2**63) <= data < 2**64:
        raise ValueError(f"fold_in: {data} does not fit 64 bits; fold in its stable_hash instead")
    return (data >> 32) & WORD, data & WORD


def _data_tensor(data: Data) -> tf.Tensor:
    if isinstance(data, int | tuple):
        high, low = split_words(data)
        unsigned = high << 32 | low
        return tf.constant(unsigned - 2**64 if high >> 31 else unsigned, tf.int64)
    return tf.cast(data, tf.int64)


@functools.cache
def _fold_segment(shape: tuple[int, ...]) -> tf.types.experimental.ConcreteFunction:
    """The compiled function that all folds of keys of one shape share.

    Uncompiled, the hundred scalar ops of Threefry would take a millisecond for each fold.
    """
    return as_xla_call(_fold, [tf.TensorSpec(shape, tf.uint32), tf.TensorSpec([], tf.int64)])


def _fold(key: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    high = tf.cast(tf.bitwise.right_shift(data, tf.constant(32, tf.int64)), tf.uint32)
    return tf.stack(threefry_2x32(key[..., 0], key[..., 1], high, tf.cast(data, tf.uint32)), axis=-1)
