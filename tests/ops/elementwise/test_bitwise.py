"""Bits of integers, as in NumPy; shifts by the width or more, which NumPy leaves to the processor, are defined."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import interpret


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint16, np.int64])
def test_as_in_numpy(dtype: type) -> None:
    info = np.iinfo(dtype)
    x = np.array([0, 1, 5, info.max, info.min, 77], dtype)
    y = np.array([3, 1, 6, 2, 7, 0], dtype)

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        binary = (mtf.bitwise_and, mtf.bitwise_or, mtf.bitwise_xor, mtf.left_shift, mtf.right_shift)
        return [*(f(x, y) for f in binary), mtf.bitwise_not(x), mtf.bitwise_and(x, 4)]

    expected = [x & y, x | y, x ^ y, x << y, x >> y, ~x, x & dtype(4)]
    for layout in ("", "n:rows"):
        found = interpret(program, {"x": ("n:6", x), "y": ("n:6", y)}, "rows:2", layout).results
        for ours, numpys in zip(found, expected, strict=True):
            assert ours.dtype == dtype
            np.testing.assert_array_equal(ours, numpys)


def test_shifts_beyond_the_width() -> None:
    def program(x: mtf.Tensor, u: mtf.Tensor, n: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.left_shift(x, n), mtf.right_shift(x, n), mtf.right_shift(u, mtf.cast(n, tf.uint32))]

    x, n = np.array([-5, -5, 5], np.int32), np.array([32, -1, 1000], np.int32)
    found = interpret(program, {"x": ("n:3", x), "u": ("n:3", x.astype(np.uint32)), "n": ("n:3", n)}, "one:1").results
    np.testing.assert_array_equal(found, [[0, 0, 0], [-1, -1, 0], [0, 0, 0]])


def test_other_dtypes_are_refused() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "n:2")
    with pytest.raises(DtypeError, match=r"a tensor of integers is needed, not float32; convert with mtf\.cast"):
        mtf.bitwise_and(x, 1)
