"""Kernels that narrow dtypes are widened for."""

from __future__ import annotations

import pytest
import tensorflow as tf

from meshtf.planning.local_work.wide_kernel import WideKernel


@pytest.mark.parametrize(("dtype", "inside"), [(tf.float16, tf.float32), (tf.bfloat16, tf.float32), (tf.float64,) * 2])
def test_narrow_dtypes_are_computed_in_float32_and_rounded_once(dtype: tf.DType, inside: tf.DType) -> None:
    seen: list[tf.DType] = []

    def difference(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        seen.append(x.dtype)
        return (x + y) - y

    y = WideKernel(difference)(tf.constant([1.0], dtype), tf.constant([4096.0], dtype))
    assert (y.dtype, seen) == (dtype, [inside])
    assert float(y[0]) == 1.0


def test_equal_kernels_compare_equal() -> None:
    assert WideKernel(tf.math.lgamma) == WideKernel(tf.math.lgamma) != WideKernel(tf.math.digamma)
