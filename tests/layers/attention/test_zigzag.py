"""A sequence in blocks round a ring: what each place holds, and that every place has the same work."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.attention._zigzag import HALVES, LENGTH_IN_BLOCK, Ring, halves_of, picked, replaced
from meshtf.testing import interpret

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("used", "num_blocks", "halves"), [(16, 4, 2), (12, 3, 2), (13, 4, 2), (9, 4, 1)])
def test_blocks_are_cut_and_joined(used: int, num_blocks: int, halves: int) -> None:
    ring = Ring(used, num_blocks, halves)

    def both(x: mtf.Tensor) -> list[mtf.Tensor]:
        cut = ring.cut(x, LENGTH_IN_BLOCK)
        order = [ring.places, mtf.Dimension(HALVES, halves), mtf.Dimension(LENGTH_IN_BLOCK, ring.size), x.shape[0]]
        return [mtf.transpose(cut, order), mtf.transpose(ring.joined(cut), x.shape)]

    x = np.arange(1.0, 2 * used + 1, dtype=np.float32).reshape(2, used)
    cut, joined = interpret(both, {"x": (f"width:2 length:{used}", x)}, "rows:1").results
    np.testing.assert_array_equal(joined, x)
    parts = np.pad(x[0], [0, ring.padding]).reshape(-1, ring.size)
    if halves == 2:
        low = [min(2 * place, 2 * num_blocks - 1 - 2 * place) for place in range(num_blocks)]
        expected = [[parts[first], parts[2 * num_blocks - 1 - first]] for first in low]
        np.testing.assert_array_equal(cut[..., 0], expected)
    else:
        np.testing.assert_array_equal(cut[:, 0, :, 0], parts)


@pytest.mark.parametrize("num_blocks", [2, 3, 4, 7])
def test_every_place_sees_as_many_parts(num_blocks: int) -> None:
    """Each pair of a query part and a part of the memory that is not ahead of it is computed once, and no other."""
    ring = Ring(2 * num_blocks, num_blocks, 2)
    firsts = [min(2 * place, 2 * num_blocks - 1 - 2 * place) for place in range(num_blocks)]
    parts = [(first, 2 * num_blocks - 1 - first) for first in firsts]

    def earlier(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [ring.is_earlier(mesh, step) for step in range(1, num_blocks)]

    found = interpret(earlier, {}, "rows:1").results
    seen = [(q, m) for own in parts for q, m in ((own[1], own[0]), (own[0], own[0]), (own[1], own[1]))]
    for step, is_earlier in enumerate(found, start=1):
        for place in range(num_blocks):
            queries, memory = parts[place], parts[place - step]
            half = 0 if is_earlier[place] else 1
            seen += [(queries[1], memory[0]), (queries[half], memory[half])]
    wanted = [(q, m) for q in range(2 * num_blocks) for m in range(q + 1)]
    assert sorted(seen) == wanted


def test_a_half_is_picked_and_put_back_at_each_place() -> None:
    def picks(x: mtf.Tensor, new: mtf.Tensor, first: mtf.Tensor) -> list[mtf.Tensor]:
        halves = halves_of(x, 2)
        return [picked(halves, first), *replaced(halves, first, new), *replaced(halves, 1, new)]

    x, new, first = (
        np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
        np.array([8.0, 9.0], np.float32),
        np.array([True, False]),
    )
    inputs = {"x": (f"{HALVES}:2 length:2", x), "new": ("length:2", new), "first": ("length:2", first)}
    found = interpret(picks, inputs, "rows:1").results
    np.testing.assert_array_equal(found, [[1, 4], [8, 2], [3, 9], [1, 2], [8, 9]])
