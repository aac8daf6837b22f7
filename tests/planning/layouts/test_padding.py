"""Dimensions that are split into parts of which the last are padded."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.dimension import Shape, convert_to_shape
from meshtf.layout import TensorLayout
from meshtf.lowering.interpreter import KnownCore
from meshtf.planning.layouts.padding import HIGHEST, LOWEST, Fill, Filling, padded_shape, uneven_dims, whole_in
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:4")
SHAPE = convert_to_shape("a:8 b:6 c:5")


def test_only_what_is_not_divided_is_made_whole() -> None:
    layout = TensorLayout((("rows",), ("cols",), ()))
    assert uneven_dims(layout, SHAPE, MESH) == [1]
    assert whole_in(layout, [0, 2]) == TensorLayout(((), ("cols",), ()))
    assert uneven_dims(TensorLayout((("rows", "cols"), (), ())), SHAPE, MESH) == []


@pytest.mark.parametrize(
    ("layouts", "sizes"),
    [
        ([((), ("cols",), ())], [8, 8, 5]),
        ([(("cols",), ("rows",), ())], [8, 6, 5]),
        ([((), (), ("rows", "cols"))], [8, 6, 8]),
        # 6 is divided by 2, and 5 is not: both are to divide what stands for 5
        ([((), ("rows",), ("rows",)), ((), (), ("cols",))], [8, 6, 8]),
        ([((), (), ())], [8, 6, 5]),
    ],
)
def test_a_padded_shape_is_the_least_that_all_layouts_divide(layouts: list, sizes: list[int]) -> None:
    assert padded_shape(SHAPE, MESH, *map(TensorLayout, layouts)).to_integer_list == sizes


@pytest.mark.parametrize(("axes", "size"), [(("rows",), 3), (("cols",), 2), (("cols", "rows"), 1)])
def test_beyond_the_end_there_are_zeros_whatever_was_there(axes: tuple[str, ...], size: int) -> None:
    plan = Plan(MESH, (), (), (), False)
    whole = np.arange(1, 6, dtype=np.float32)
    zeros = Filling(Fill(), 1, axes, size, end=5)
    for core in (KnownCore(plan, number) for number in range(8)):
        begin = core.position(axes) * size
        expected = np.pad(whole, [0, 8])[begin : begin + size]
        held = np.where(np.arange(begin, begin + size) < 5, expected, np.nan).astype(np.float32)
        found = zeros(core, tf.tile(held[None, :, None], [2, 1, 3]))
        np.testing.assert_array_equal(found, np.tile(expected[None, :, None], [2, 1, 3]))


@pytest.mark.parametrize(
    ("fill", "dtype", "expected"),
    [
        (Fill(LOWEST), tf.float32, -np.inf), (Fill(HIGHEST), tf.bfloat16, np.inf), (Fill(LOWEST), tf.int8, -128),
        (Fill(HIGHEST), tf.uint8, 255), (Fill(LOWEST), tf.bool, False), (Fill(HIGHEST), tf.bool, True),
        (Fill(1), tf.complex64, 1), (Fill(True), tf.bool, True),
    ],
)  # fmt: skip
def test_the_lowest_and_the_highest_of_a_dtype(fill: Fill, dtype: tf.DType, expected: float) -> None:
    constant = fill.constant(dtype)
    assert (constant.dtype, constant.numpy()) == (dtype, expected)


def test_a_scalar_has_nothing_to_pad() -> None:
    assert uneven_dims(TensorLayout(()), Shape([]), MESH) == []
