"""How far results under two layouts may differ, by dtype, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

TOLERANCES: dict[tf.DType, float] = {
    # A layout changes the order of sums, and with it the last bits. Each figure is some hundreds of roundings of the
    # dtype where it is wide, and about ten where it is narrow, which leaves the shortest programs only.
    tf.float64: 1e-11,
    tf.float32: 3e-5,
    tf.float16: 1e-2,
    tf.bfloat16: 8e-2,
    tf.complex64: 3e-5,
    tf.complex128: 1e-11,
}
"""Relative to the largest value of the tensor. Dtypes that are not here, integers and bool, must be equal."""


def assert_close(actual: Any, expected: Any, dtype: tf.DType, what: str = "", tolerance: float | None = None) -> None:
    """Fails unless `actual` is `expected`: exactly, or for floating dtypes within a tolerance.

    Args:
      actual: an array.
      expected: an array of the same shape, perhaps of higher precision.
      dtype: whose tolerance applies.
      what: names the arrays in the message.
      tolerance: relative to one plus the largest finite expected value; the dtype's own by default.
    """
    allowed = TOLERANCES.get(tf.as_dtype(dtype), 0.0) if tolerance is None else tolerance
    actual, expected = _plain(actual), _plain(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    if not allowed or actual.dtype.kind not in "fc":
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    scale = 1.0 + (float(finite.max()) if finite.size else 0.0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=allowed * scale, err_msg=what)


def _plain(x: Any) -> np.ndarray:
    """As float64 where the dtype is a narrow float that NumPy's comparisons do not know."""
    array = np.asarray(x)
    return array.astype(np.float64) if array.dtype.kind == "V" or array.dtype.itemsize == 2 else array
