"""Products of rows in groups where all shapes are known before: tile by tile (Gale et al. 2022, MegaBlocks).

Rows are cut into tiles of equal size. Each pair of a tile and a group that has rows in it is a product of the whole
tile, of which the group's rows are kept: as many pairs as tiles, and one more for each group that begins within one.
Pairs are gone through in a loop, which makes no copies of matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.ops.algebra.wider_operands import wider_operands
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.planning.plan import Core


def products(core: Core, x: tf.Tensor, w: tf.Tensor, groups: RowGroups, *, transpose_w: bool) -> tf.Tensor:
    """[b, r, m]: each row of x [b, r, k] times its group's matrix of w [n, k, m]; of a row in no group, zeros.

    With `transpose_w` matrices are [m, k].
    """
    (b, r, _), m, dtype = x.shape.as_list(), w.shape[1 if transpose_w else 2], core.product_dtype(x.dtype)
    tiles = _tiles(x, groups.tile)

    def write(y: tf.Tensor, at: tf.Tensor, number: tf.Tensor, is_own: tf.Tensor) -> tf.Tensor:
        rows, matrix = wider_operands(tf.gather(tiles, at), tf.gather(w, number), dtype)
        made = tf.cast(tf.linalg.matmul(rows, matrix, transpose_b=transpose_w), x.dtype)
        made = tf.where(is_own, made, tf.gather(y, at))
        return tf.tensor_scatter_nd_update(y, tf.reshape(at, [1, 1]), made[tf.newaxis])

    y = tf.zeros([*tiles.shape[:2], m], x.dtype)
    return tf.reshape(tf.reshape(_over_pairs(groups, y, write), [-1, m])[: b * r], [b, r, m])


def sums(core: Core, x: tf.Tensor, y: tf.Tensor, groups: RowGroups) -> tf.Tensor:
    """[n, k, m]: of each matrix's groups the sum over rows of x [b, r, k] and y [b, r, m] of their products.

    It is float32 until it is whole, where the rows are narrower.
    """
    size, dtype = [groups.num_matrices, x.shape[2], y.shape[2]], core.product_dtype(x.dtype)
    tiles, beside = _tiles(x, groups.tile), _tiles(y, groups.tile)
    total = sum_dtype(x.dtype)

    def write(sums: tf.Tensor, at: tf.Tensor, number: tf.Tensor, is_own: tf.Tensor) -> tf.Tensor:
        # Zeros in both: what is infinite in a row of another group, times zero, would be NaN.
        own, others = (tf.where(is_own, tf.gather(each, at), tf.zeros([], each.dtype)) for each in (tiles, beside))
        own, others = wider_operands(own, others, dtype)
        made = tf.cast(tf.linalg.matmul(own, others, transpose_a=True), total)
        return tf.tensor_scatter_nd_add(sums, tf.reshape(number, [1, 1]), made[tf.newaxis])

    return tf.cast(_over_pairs(groups, tf.zeros(size, total), write), x.dtype)


def _tiles(x: tf.Tensor, tile: int) -> tf.Tensor:
    """[tiles, tile, k], the last filled up with zeros, of x [b, r, k]."""
    b, r, k = x.shape.as_list()
    missing = -(b * r) % tile
    flat = tf.reshape(x, [b * r, k])
    return tf.reshape(tf.pad(flat, [[0, missing], [0, 0]]) if missing else flat, [-1, tile, k])


def _over_pairs(groups: RowGroups, y: tf.Tensor, write: Callable[..., tf.Tensor]) -> tf.Tensor:
    """What `write` makes of y with each pair: by its tile, its matrix, and bool [tile, 1], the rows of the group."""
    first, end, matrix = tf.unstack(groups.table, axis=1)
    tile = groups.tile
    first_tile = first // tile
    count = tf.where(first < end, (end - 1) // tile - first_tile + 1, 0)
    pairs_to = tf.cumsum(count)

    def next_pair(pair: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        group = tf.reduce_sum(tf.cast(pairs_to <= pair, tf.int32))
        own_first, own_end, number, own_tile, before = (
            tf.gather(each, group) for each in (first, end, matrix, first_tile, pairs_to - count)
        )
        at = own_tile + pair - before
        rows = (at * tile + tf.range(tile))[:, tf.newaxis]
        return pair + 1, write(y, at, number, tf.logical_and(rows >= own_first, rows < own_end))

    return tf.while_loop(lambda pair, _: pair < pairs_to[-1], next_pair, (tf.constant(0), y), parallel_iterations=1)[1]
