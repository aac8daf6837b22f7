"""Every block is seen once, by those behind it, and no other; a window leaves out what it does not reach."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.attention.lean._halving import BLOCKS, Halving
from meshtf.testing import interpret


@pytest.mark.parametrize(("length", "size"), [(8, 1), (13, 2), (64, 4), (7, 7)])
def test_the_rectangles_and_the_blocks_themselves_are_all_that_is_not_ahead(length: int, size: int) -> None:
    halving = Halving.of_blocks(length, size)
    seen = np.eye(halving.count, dtype=int)
    for level in halving.levels(None):
        rows, columns = level.begins_of_seeing(1), level.begins_of_seen(1)
        assert rows.shape == columns.shape == (level.num_pairs, level.reach)
        for row, column in zip(rows.reshape(-1), columns.reshape(-1), strict=True):
            seen[row, column : column + level.reach] += 1
    np.testing.assert_array_equal(seen, np.tri(halving.count, dtype=int))


@pytest.mark.parametrize("window", [1, 2, 3, 9, 64])
def test_what_is_left_out_no_window_reaches(window: int) -> None:
    halving, near = Halving.of_blocks(64, 4), np.zeros([16, 16], bool)
    for level in halving.levels(window):
        rows, columns = level.begins_of_seeing(1), level.begins_of_seen(1)
        for row, column in zip(rows.reshape(-1), columns.reshape(-1), strict=True):
            near[row, column : column + level.reach] = True
    position = np.arange(64)
    distance = position[:, None] - position
    reached = ((distance >= 0) & (distance < window)).reshape(16, 4, 16, 4).any((1, 3))
    np.testing.assert_array_equal(reached & ~near, np.eye(16, dtype=bool))


def test_blocks_divide_as_the_length_does() -> None:
    assert Halving.of_blocks(4096, 256) == Halving(4096, 4, 256)
    assert Halving.of_blocks(1000, 250) == Halving(1000, 2, 256)
    assert Halving.of_blocks(1001, 250) == Halving(1001, 3, 126)


def test_what_is_seen_what_sees_and_what_takes_its_place() -> None:
    halving = Halving.of_blocks(16, 2)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        cut = halving.cut(x, "length")
        (smallest, middle, _) = halving.levels(3)
        return [
            smallest.seeing(cut),
            middle.seeing(cut),
            middle.seen(cut),
            middle.with_seeing(cut, -middle.seeing(cut)),
        ]

    found = interpret(program, {"x": ("length:16", np.arange(16.0, dtype=np.float32))}, "rows:1").results
    blocks = np.arange(16.0).reshape(8, 2)
    np.testing.assert_array_equal(found[0], blocks[[[1], [3], [5], [7]]])
    np.testing.assert_array_equal(found[1], blocks[[[2], [6]]])
    np.testing.assert_array_equal(found[2], blocks[[[1], [5]]])
    np.testing.assert_array_equal(found[3], blocks * np.where(np.isin(np.arange(8), [2, 6]), -1, 1)[:, None])
    assert BLOCKS == "blocks"
