"""Boxes."""

from __future__ import annotations

import numpy as np
import pytest

from meshtf.checkpoint._box import Box


def test_specifications() -> None:
    assert Box((2, 0), (2, 4)).specification((4, 8)) == "4 8 2,2:0,4"
    assert Box.whole((4, 8)).specification((4, 8)) == ""
    assert Box.whole(()).specification(()) == ""


def test_as_slices() -> None:
    box = Box.of_slices([slice(1, 3), slice(0, 5)])
    assert (box, box.num_elements) == (Box((1, 0), (2, 5)), 10)
    assert box.slices == (slice(1, 3), slice(0, 5))
    assert Box((2, 4), (1, 1)).relative_to(box) == Box((1, 4), (1, 1))


@pytest.mark.parametrize("most", [1, 3, 7, 24, 1000])
def test_subdivided_in_the_order_of_memory(most: int) -> None:
    numbers = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    box = Box((1, 2, 0), (2, 3, 6))
    parts = [numbers[part.slices] for part in box.subdivided(most)]
    assert all(0 < part.size <= most for part in parts)
    np.testing.assert_array_equal(np.concatenate([p.ravel() for p in parts]), numbers[box.slices].ravel())
