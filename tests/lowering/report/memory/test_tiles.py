"""Bytes of arrays in tiles, against what libtpu set aside for arrays of these shapes."""

from __future__ import annotations

import pytest
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import TensorLayout
from meshtf.lowering.report.memory._tiles import bytes_by_rows, tiled_bytes
from meshtf.planning.plan import Value

pytestmark = pytest.mark.quick


def _value(shape: tuple[int, ...], dtype: tf.DType = tf.float32) -> Value:
    return Value(0, Shape([]), dtype, TensorLayout(()), (), shape)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((), tf.float32, 512),
        ((10,), tf.int32, 512),
        ((192,), tf.int32, 1024),
        ((192,), tf.bool, 512),
        ((1408,), tf.float32, 8192),
        ((32, 128), tf.float32, 16384),
        ((32, 128), tf.bfloat16, 8192),
        ((128, 10), tf.float32, 8192),
        ((192, 4), tf.float32, 4096),
        ((4, 128, 2, 32), tf.float32, 131072),
        ((8, 128), tf.complex64, 8192),
        ((0, 128), tf.float32, 0),
    ],
)
def test_the_order_that_wastes_least_is_taken(shape: tuple[int, ...], dtype: tf.DType, expected: int) -> None:
    assert tiled_bytes(_value(shape, dtype)) == expected


def test_by_rows_the_last_dimension_fills_the_lanes() -> None:
    assert bytes_by_rows(_value((128, 10))) == 128 * 128 * 4
    assert bytes_by_rows(_value((4, 128, 2, 32))) == 4 * 128 * 2 * 128 * 4
    assert bytes_by_rows(_value((10,))) == 512
