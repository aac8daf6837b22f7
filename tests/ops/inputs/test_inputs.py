"""Arrays and numbers that are known while a graph is built."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret_graph

MESH = mtf.Mesh(mtf.Graph())


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], tf.int32),
        ([1, -(2**31)], tf.int32),
        ([1, 2**31], tf.int64),
        ([1.0, 2], tf.float32),
        ([True, False], tf.bool),
        (np.array([1, 2]), tf.int64),
        (np.array([0.1, 0.2]), tf.float64),
        ([np.int64(1), np.int64(2)], tf.int64),
        (tf.constant([1, 2], tf.int64), tf.int64),
    ],
    ids=str,
)
def test_the_dtype_of_what_is_imported(value: Any, dtype: tf.DType) -> None:
    """Arrays keep theirs; numbers of Python are int32, where it holds them, and float32, as in TensorFlow."""
    assert mtf.import_tf_tensor(MESH, value, "d:2").dtype == dtype


def test_numbers_of_python_keep_their_values() -> None:
    """2**31 would not fit in an int32; 16777217 is no float32, and is not asked to be one."""
    for value in ([1, 2**31], [1, 16777217]):
        x = mtf.import_tf_tensor(MESH, value, "d:2")
        np.testing.assert_array_equal(x.operation.value, value)
    assert mtf.import_tf_tensor(MESH, 3).dtype == tf.int32
    assert mtf.import_tf_tensor(MESH, [[0.5], [1]], "rows:2 cols:1").dtype == tf.float32


def test_large_integers_and_fractions_are_scalars() -> None:
    """NumPy has no dtype for them."""
    x = mtf.ones(MESH, "n:1")
    ys = [x * 2**70, x + Fraction(1, 4), x * 10**400, -(10**400) * x]
    found = interpret_graph(MESH.graph, ys, {}, "rows:1").results
    np.testing.assert_array_equal(found, [[2.0**70], [1.25], [np.inf], [-np.inf]])


def test_dropout_that_drops_nothing_takes_every_dtype() -> None:
    ids = mtf.placeholder(MESH, "batch:4", tf.int32)
    assert mtf.dropout(ids, False, rate=0.5) is ids
    assert mtf.dropout(ids, True, rate=0.0) is ids


def test_ctrl_c_in_the_limits_of_a_dtype_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """tf.DType.min and tf.DType.max catch it with all other errors, and say that the dtype has no limits."""

    class Interrupted:
        def __init__(self, _: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("ml_dtypes.iinfo", Interrupted)
    monkeypatch.setattr(np, "iinfo", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        mtf.ones(mtf.Mesh(mtf.Graph()), "n:2", tf.int32)
