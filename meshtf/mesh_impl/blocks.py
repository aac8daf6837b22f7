"""Splits a dimension into blocks, and merges blocks. For the leading dimension, this needs no transpose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from meshtf.errors import ShapeError


def static_shape(x: tf.Tensor) -> list[int]:
    """The sizes of a tensor whose shape is known when tracing."""
    return cast("list[int]", x.shape.as_list())


def reshaped(x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
    """x reshaped to these sizes. If x has them already, x itself, without another operation."""
    return x if x.shape == sizes else tf.reshape(x, sizes)


def split_to_front(x: tf.Tensor, dim: int, blocks: int) -> tf.Tensor:
    """Converts `[.., blocks * n, ..]` to `[blocks, .., n, ..]`."""
    sizes = static_shape(x)
    if sizes[dim] % blocks:
        raise ShapeError(f"dimension {dim} of {sizes} does not divide into {blocks} blocks")
    block = sizes[:dim] + [sizes[dim] // blocks] + sizes[dim + 1 :]
    if math.prod(sizes[:dim]) == 1:
        return tf.reshape(x, [blocks, *block])
    cut = tf.reshape(x, sizes[:dim] + [blocks, sizes[dim] // blocks] + sizes[dim + 1 :])
    return tf.transpose(cut, [dim, *range(dim), *range(dim + 1, len(sizes) + 1)])


def merge_from_front(x: tf.Tensor, dim: int) -> tf.Tensor:
    """Converts `[blocks, .., n, ..]` to `[.., blocks * n, ..]`. `dim` is the position of n without the blocks."""
    blocks, *block = static_shape(x)
    merged = block[:dim] + [blocks * block[dim]] + block[dim + 1 :]
    if math.prod(block[:dim]) != 1:
        x = tf.transpose(x, [*range(1, dim + 1), 0, *range(dim + 1, len(block) + 1)])
    return tf.reshape(x, merged)
