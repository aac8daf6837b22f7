"""Slices, pads, splits and concatenations along a split dimension move what the cores lack, and no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret, plan

X = mtf.Dimension("x", 16)
WIDTH = 3
ROW = WIDTH * 4  # bytes of one element of x
SHAPE = mtf.Shape([X, ("width", WIDTH)])
ARRAY = np.arange(48, dtype=np.float32).reshape(16, WIDTH)

CASES: dict[str, tuple[Callable[[mtf.Tensor], mtf.Tensor], np.ndarray, list[int]]] = {
    # core j needs [2j, 2j + 2) and holds [4j, 4j + 4): two elements from two cores before, four from the one before
    "slice": (lambda x: mtf.slice(x, 0, 8, "x"), ARRAY[:8], [2, 4]),
    # core j needs [5j - 2, 5j + 3): core 1 one from behind, core 2 one from before
    "pad": (lambda x: mtf.pad(x, [2, 2], "x"), np.pad(ARRAY, [[2, 2], [0, 0]]), [1, 1]),
    # the first half lies with cores 0 and 1, the second with 2 and 3
    "split": (lambda x: mtf.split(x, X, 2)[1], ARRAY[8:], [4, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_only_what_a_core_lacks_moves(name: str) -> None:
    fn, expected, elements = CASES[name]
    collectives = plan(fn, {"x": mtf.TensorSpec(SHAPE)}, "rows:4", "x:rows").collectives
    assert {c.step.kind for c in collectives} == {"permute"}
    assert sorted(c.input.slice_bytes for c in collectives) == sorted(n * ROW for n in elements)
    result = interpret(fn, {"x": (SHAPE, ARRAY)}, "rows:4", "x:rows").results
    np.testing.assert_array_equal(result, expected)


def test_padding_that_falls_on_the_cores_borders_moves_whole_slices_once() -> None:
    # core j of 4 needs [8j - 16, 8j - 8): core 2 the slices of cores 0 and 1, core 3 those of 2 and 3
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.concat([mtf.zeros_like(x), x], "x")

    result = interpret(fn, {"x": (SHAPE, ARRAY)}, "rows:4", "x:rows").results
    np.testing.assert_array_equal(result, np.concatenate([np.zeros_like(ARRAY), ARRAY]))
