"""Products of rows in groups where all shapes must be known in advance: tile by tile (Gale et al. 2022, MegaBlocks).

Rows are cut into tiles of equal size. Each pair of a tile and a group with rows in it is a product of the whole tile,
but only the group's rows of the product are kept. There are as many pairs as tiles, and one more for each group that
begins inside of a tile. For tiles of 4 rows and groups of 3, 4 and 1 rows:

    rows      0 1 2 | 3     4 5 6 | 7
    groups    a a a   b     b b b   c       pairs: (tile 0, a), (tile 0, b), (tile 1, b), (tile 1, c)

A loop runs over the pairs, without copies of matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.ops.algebra.matrix_product import matrix_product
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.planning.plan import Core


def products(core: Core, x: tf.Tensor, w: tf.Tensor, groups: RowGroups, *, transpose_w: bool) -> tf.Tensor:
    """[b, r, m]: each row of x [b, r, k] times its group's matrix of w [n, k, m]; zeros for a row in no group.

    With `transpose_w` matrices are [m, k].
    """
    (b, r, _), m = x.shape.as_list(), w.shape[1 if transpose_w else 2]
    tiles = _tiles(x, groups.tile)

    def write(y: tf.Tensor, at: tf.Tensor, number: tf.Tensor, is_own: tf.Tensor) -> tf.Tensor:
        made = matrix_product(core, tf.gather(tiles, at), tf.gather(w, number), transpose_b=transpose_w)
        made = tf.where(is_own, tf.cast(made, x.dtype), tf.gather(y, at))
        return tf.tensor_scatter_nd_update(y, tf.reshape(at, [1, 1]), made[tf.newaxis])

    y = tf.zeros([*tiles.shape[:2], m], x.dtype)
    return tf.reshape(tf.reshape(_over_pairs(groups, y, write), [-1, m])[: b * r], [b, r, m])


def sums(core: Core, x: tf.Tensor, y: tf.Tensor, groups: RowGroups) -> tf.Tensor:
    """[n, k, m]: for each matrix, the sum of the products of rows of x [b, r, k] and y [b, r, m], over its groups'
    rows.

    Sums of narrower floats are float32 until they are complete.
    """
    size = [groups.num_matrices, x.shape[2], y.shape[2]]
    tiles, beside = _tiles(x, groups.tile), _tiles(y, groups.tile)
    total = sum_dtype(x.dtype)

    def write(sums: tf.Tensor, at: tf.Tensor, number: tf.Tensor, is_own: tf.Tensor) -> tf.Tensor:
        # Both are set to zero: infinity in a row of another group, times zero, would be NaN.
        own, others = (tf.where(is_own, tf.gather(each, at), tf.zeros([], each.dtype)) for each in (tiles, beside))
        made = tf.cast(matrix_product(core, own, others, transpose_a=True), total)
        return tf.tensor_scatter_nd_add(sums, tf.reshape(number, [1, 1]), made[tf.newaxis])

    return tf.cast(_over_pairs(groups, tf.zeros(size, total), write), x.dtype)


def _tiles(x: tf.Tensor, tile: int) -> tf.Tensor:
    """[tiles, tile, k] of x [b, r, k]; the last tile is filled up with zeros."""
    b, r, k = x.shape.as_list()
    missing = -(b * r) % tile
    flat = tf.reshape(x, [b * r, k])
    return tf.reshape(tf.pad(flat, [[0, missing], [0, 0]]) if missing else flat, [-1, tile, k])


def _over_pairs(groups: RowGroups, y: tf.Tensor, write: Callable[..., tf.Tensor]) -> tf.Tensor:
    """y after `write` for each pair.

    `write` gets y, the numbers of the pair's tile and matrix, and bool [tile, 1], the group's rows.
    """
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
