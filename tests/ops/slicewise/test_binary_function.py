"""binary_op_with_broadcasting against TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.testing import assert_layout_invariant, interpret

RNG = np.random.default_rng(0)
INPUTS = {
    "x": ("b:4 c:6", RNG.normal(size=(4, 6))),
    "y": ("d:8 b:4", RNG.normal(size=(8, 4))),
}


def test_values_and_gradients(agrees: Any) -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.binary_op_with_broadcasting(tf.math.atan2, x, y),
            mtf.binary_op_with_broadcasting(lambda p, q: p * tf.exp(q), x, y, "d:8 c:6 b:4"),
            mtf.binary_op_with_broadcasting(tf.math.squared_difference, 2.0, y),
            mtf.binary_op_with_broadcasting(tf.less, x, y, output_dtype=tf.bool),
            mtf.binary_op_with_broadcasting(tf.math.multiply_no_nan, x, x, "new:2 c:6 b:4"),
        ]

    def reference(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        p, q = x[:, :, None], tf.transpose(y)[:, None]
        squares = tf.transpose(x * x)
        return [
            tf.math.atan2(p, q),
            tf.transpose(p * tf.exp(q), [2, 1, 0]),
            tf.math.squared_difference(tf.constant(2.0, y.dtype), y),
            p < q,
            tf.stack([squares, squares]),
        ]

    agrees(program, reference, INPUTS, order=1)


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return mtf.binary_op_with_broadcasting(tf.math.atan2, x, y)

    inputs = {name: (shape, array.astype(np.float32)) for name, (shape, array) in INPUTS.items()}
    assert_layout_invariant(program, inputs, ["b:rows;d:cols", "d:rows+cols"])


def test_what_both_have_split_is_not_sent() -> None:
    program = lambda x, y: mtf.binary_op_with_broadcasting(tf.math.atan2, x, y)  # noqa: E731
    assert not interpret(program, INPUTS, "rows:2;cols:2", "b:rows;d:cols").plan.collectives


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, n = mtf.placeholder(mesh, "a:4 b:2"), mtf.placeholder(mesh, "a:4", tf.int32)
    with pytest.raises(ShapeError, match=r'dimension "a" has size 4 in one operand and 3 in another'):
        mtf.binary_op_with_broadcasting(tf.add, x, mtf.placeholder(mesh, "a:3"))
    with pytest.raises(ShapeError, match=r'no dimension "b" in \[a:4\]'):
        mtf.binary_op_with_broadcasting(tf.add, x, x, "a:4")
    with pytest.raises(DtypeError, match="float32"):
        mtf.binary_op_with_broadcasting(tf.add, x, n)
    with pytest.raises(GraphError, match=r"tf_fn must be a function of tf\.Tensors, not str"):
        mtf.binary_op_with_broadcasting("add", x, x)
