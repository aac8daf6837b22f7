"""Functions traced without `tf.function`, and operations made without TensorFlow's own Python."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit._traced_function import traced_function

X = np.arange(6, dtype=np.float32)


def test_it_gives_what_the_body_gives() -> None:
    function = traced_function(lambda x, y: [x + y, x], [tf.TensorSpec([6]), tf.TensorSpec([])], "both")
    total, same = function(tf.constant(X), tf.constant(2.0))
    np.testing.assert_array_equal(total, X + 2)
    np.testing.assert_array_equal(same, X)
    assert function.name.startswith(b"__inference_both")
    assert not any(o.type == "Identity" for o in function.graph.get_operations())


def test_lists_of_tensors_and_loops_are_traced_as_ever() -> None:
    def body(x: tf.Tensor) -> list[tf.Tensor]:
        parts = tf.split(tf.concat([x, x * 2], 0), [2, 4, 6])
        _, total = tf.while_loop(lambda n, _: n < 3, lambda n, y: (n + 1, y + tf.reduce_sum(x)), (0, 0.0))
        doubled = tf.cond(total > 0.0, lambda: total * 2, lambda: total)
        return [*parts, doubled, tf.function(lambda z: z[::-1])(x), tf.map_fn(lambda z: z + 1.0, x)]

    whole = np.concatenate([X, X * 2])
    expected = [*np.split(whole, [2, 6]), 6 * X.sum(), X[::-1], X + 1]
    for actual, wanted in zip(traced_function(body, [tf.TensorSpec([6])], "f")(tf.constant(X)), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_effects_take_place_in_the_order_of_the_body() -> None:
    variable, other = tf.Variable(1.0), tf.Variable(5.0)

    def body(handle: tf.Tensor) -> list[tf.Tensor]:
        before = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=before * 3.0)
        after = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=after + 1.0)
        other.assign_add(after)  # nothing waits for it but the end
        return [before, after]

    function = traced_function(body, [tf.TensorSpec([], tf.resource)], "f")
    assert [float(y) for y in function(variable.handle)] == [1.0, 3.0]
    assert (float(variable), float(other)) == (4.0, 8.0)
    assert [float(y) for y in function(variable.handle)] == [4.0, 12.0]


def test_control_dependencies_and_devices_are_kept() -> None:
    def body(x: tf.Tensor) -> list[tf.Tensor]:
        first = tf.square(x)
        with tf.control_dependencies([first]), tf.device("/device:CPU:1"):
            return [tf.negative(x, name="behind")]

    function = traced_function(body, [tf.TensorSpec([6])], "f")
    behind = function.graph.get_operation_by_name("behind")
    assert [o.type for o in behind.control_inputs] == ["Square"]
    assert behind.device.endswith("CPU:1")


def test_what_fails_is_said_as_tensorflow_says_it() -> None:
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        traced_function(lambda x: [tf.raw_ops.MatMul(a=x, b=x)], [tf.TensorSpec([2, 3])], "f")
    function = traced_function(lambda x, n: [tf.gather(x, n)], [tf.TensorSpec([6]), tf.TensorSpec([], tf.int32)], "f")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"9 is not in \[0, 6\)"):
        function(tf.constant(X), tf.constant(9))


def test_functions_of_slices_may_close_over_arrays_and_variables() -> None:
    batch, table, scale = mtf.Dimension("batch", 8), tf.range(1000.0), tf.Variable(3.0)

    def body(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(mtf.slicewise(lambda s: s * scale + table[7], [x], splittable_dims=["batch"]))

    step = mtf.function(body, mtf.SpmdMeshImpl("all:8", "batch:all"), {"x": mtf.TensorSpec([batch])})
    x = np.arange(8, dtype=np.float32)
    assert float(step(x=x)) == x.sum() * 3 + 8 * 7
    scale.assign(2.0)
    assert float(step(x=x)) == x.sum() * 2 + 8 * 7
    assert float(tf.function(step)(x=tf.constant(x))) == x.sum() * 2 + 8 * 7
