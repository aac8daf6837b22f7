"""Rows written in a tensor's own memory are there to the bit, whatever they are written as."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.planning.local_work.rows_in_place import with_rows

pytestmark = pytest.mark.quick

DTYPES = [
    "bfloat16", "float16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint8", "int16", "int32",
    "int64", "uint32",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [[1024, 2], [2049], [3], []], ids=["long", "odd", "short", "scalars"])
def test_rows_are_there_and_all_others_stay(dtype: str, row: list[int]) -> None:
    """Any bits: NaN among them."""
    own = tf.as_dtype(dtype)
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tf.Tensor:
        if own == tf.bool:
            return tf.constant(rng.integers(0, 2, [n, *row]).astype(bool))
        size = [own.size] if own.size > 1 else []
        return tf.bitcast(tf.constant(rng.integers(0, 256, [n, *row, *size], np.uint8)), own)

    x, rows = drawn(5), drawn(2)
    expected = x.numpy().copy()
    expected[[3, 0]] = rows.numpy()
    found = with_rows(tf.identity(x), tf.constant([3, 0]), rows)
    assert found.numpy().tobytes() == expected.tobytes()


def test_so_many_rows_as_are_given() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 1024], tf.float32)])
    def written(where: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return with_rows(tf.raw_ops.Empty(shape=[4, 1024], dtype=tf.float32, init=True), where, rows)

    for places in ([], [2], [1, 3]):
        found = written(np.array(places, np.int32), np.ones([len(places), 1024], np.float32))
        np.testing.assert_array_equal(found, np.isin(np.arange(4), places)[:, None] * np.ones([4, 1024], np.float32))


def test_long_rows_are_written_as_the_widest_numbers() -> None:
    """In the memory that they are written to: no tensor is made but views."""

    @tf.function(input_signature=[tf.TensorSpec([4, 1024], tf.float32), tf.TensorSpec([1, 1024], tf.float32)])
    def written(x: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        return with_rows(x, tf.constant([2]), rows)

    operations = written.get_concrete_function().graph.get_operations()
    assert {o.type for o in operations} <= {"Placeholder", "Const", "Reshape", "Bitcast", "InplaceUpdate", "Identity"}
    assert [o.inputs[0].dtype for o in operations if o.type == "InplaceUpdate"] == [tf.complex128]
