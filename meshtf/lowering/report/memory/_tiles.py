"""The memory that an array takes on a TPU, which stores arrays in tiles.

The last dimension in memory is stored in 128 lanes of 32 bits, and the last but one in rows of eight. Several rows of
narrower dtypes share one. Vectors are stored in their own rows, of at most 1,024 numbers. XLA chooses the order of the
dimensions, and with it how much is wasted.

For example, float32 [3, 130] takes [4, 256] words in this order, since 130 fills 256 lanes. With the dimensions
exchanged it takes [136, 128]. XLA chooses the smaller one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from meshtf.planning.plan import Value

_WORD = 4
_LANES, _ROWS, _LONGEST_TILE = 128, 8, 1024


def tiled_bytes(value: Value) -> int:
    """Returns the bytes of a core's slice in the order of dimensions that wastes least.

    libtpu reserves as much for the arguments of a program: see `make benchmark-tpu.plan_against_compiler`. Numbers of
    more than 32 bits are several arrays of words.
    """
    return _bytes(value, itertools.permutations(range(len(value.slice_shape)), 2))


def bytes_by_rows(value: Value) -> int:
    """Returns the bytes of a core's slice with its dimensions in the order of their names, as in a vector of its
    elements.
    """
    rank = len(value.slice_shape)
    return _bytes(value, [(rank - 2, rank - 1)])


def _bytes(value: Value, orders: Iterable[tuple[int, int]]) -> int:
    """Returns the bytes in the best of some orders. `orders`: the last dimension but one in memory, and the last."""
    size = min(value.dtype.size, _WORD)
    shape, in_word = value.slice_shape, _WORD // size
    count = math.prod(shape)
    if len(shape) < 2:
        tiled = _filled(count, min(max(_power_of_two(count), _LANES * in_word), _LONGEST_TILE))
    elif not count:
        tiled = 0
    else:
        tiled = min(_tiled(count, shape[row], shape[lane], in_word) for row, lane in orders)
    return value.dtype.size // size * size * tiled


def _tiled(count: int, rows: int, lanes: int, in_word: int) -> int:
    tile = min(max(_power_of_two(rows), in_word), _ROWS)
    return count // (rows * lanes) * _filled(rows, tile) * _filled(lanes, _LANES)


def _filled(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def _power_of_two(size: int) -> int:
    """Returns the smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()
