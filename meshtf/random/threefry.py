"""Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).

Threefry is a counter-based generator: it encrypts a counter (here a position) under a key, so there is no state to pass
on. Any slice can be computed anywhere, in any order. A round mixes two words so that after 20 of them every bit of the
counter and the key has changed about half of the result's bits:

    word0 += word1;  word1 = rotate_left(word1, r) ^ word0

It needs only 32-bit additions, exclusive ors and rotations, which are exact and the same on every processor.
"""

from __future__ import annotations

import tensorflow as tf

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
GROUPS = 5  # of four rounds each; a part of the key is added after each group
PARITY = 0x1BD11BDA
WORD = 0xFFFFFFFF


def threefry_2x32(
    key0: tf.Tensor, key1: tf.Tensor, counter0: tf.Tensor, counter1: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Two words for each counter: uint32, in the shape to which the arguments broadcast.

    `key0` and `counter0` are the high words.
    """
    xor = tf.bitwise.bitwise_xor
    # Each constant is one node of the graph: a call of a compiled segment costs by its nodes.
    shifts = {count: tf.constant(count, tf.uint32) for each in sum(ROTATIONS, ()) for count in (each, 32 - each)}
    keys = (key0, key1, xor(xor(key0, key1), tf.constant(PARITY, tf.uint32)))
    word0, word1 = counter0 + key0, counter1 + key1
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            word0 = word0 + word1
            word1 = xor(_rotate_left(word1, shifts[rotation], shifts[32 - rotation]), word0)
        word0 = word0 + keys[(group + 1) % 3]
        word1 = word1 + (keys[(group + 2) % 3] + tf.constant(group + 1, tf.uint32))
    return word0, word1


def threefry_2x32_of_ints(key0: int, key1: int, counter0: int, counter1: int) -> tuple[int, int]:
    """The same function of Python integers, for keys and counters that are known while a program is built."""
    keys = (key0, key1, key0 ^ key1 ^ PARITY)
    word0, word1 = (counter0 + key0) & WORD, (counter1 + key1) & WORD
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            word0 = (word0 + word1) & WORD
            word1 = ((word1 << rotation) & WORD | word1 >> (32 - rotation)) ^ word0
        word0 = (word0 + keys[(group + 1) % 3]) & WORD
        word1 = (word1 + keys[(group + 2) % 3] + group + 1) & WORD
    return word0, word1


def _rotate_left(word: tf.Tensor, count: tf.Tensor, rest: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_or(tf.bitwise.left_shift(word, count), tf.bitwise.right_shift(word, rest))
