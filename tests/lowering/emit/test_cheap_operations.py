from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from meshtf.lowering.emit._cheap_operations import cheap_operations


def traced(body: Callable[[tf.Tensor], tf.Tensor]) -> tf.types.experimental.ConcreteFunction:
    return tf.function(cheap_operations()(body), autograph=False).get_concrete_function(tf.TensorSpec([6]))


def constants(function: tf.types.experimental.ConcreteFunction) -> list[tf.Operation]:
    return [o for o in function.graph.get_operations() if o.type == "Const"]


def test_equal_ones_are_one_operation_and_others_stay() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x + 2.0, [2, 3]) + tf.reshape(x * 2.0, [2, 3]) + tf.constant([[2.0]])

    function = traced(body)
    assert Counter((o.outputs[0].dtype, tuple(o.outputs[0].shape)) for o in constants(function)) == {
        (tf.float32, ()): 1,
        (tf.float32, (1, 1)): 1,
        (tf.int32, (2,)): 1,
    }
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(function(tf.constant(x)), (x + 2 + x * 2 + 2).reshape(2, 3))


def test_equal_bytes_of_other_types_are_not_equal() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.constant(0, tf.int64), tf.float32) + tf.cast(tf.constant(0, tf.int32), tf.float32) + x

    assert len(constants(traced(body))) == 2


def test_one_that_was_first_made_where_something_is_waited_for_waits_for_nothing() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([tf.square(x)]):
            waited = x + 3.0
        return waited * 3.0

    (shared,) = constants(traced(body))
    assert not shared.control_inputs


def test_devices_have_their_own() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.device("/device:CPU:1"):
            there = x + 1.0
        return there * 1.0

    assert {o.device.endswith("CPU:1") for o in constants(traced(body))} == {True, False}


def test_large_ones_are_not_compared() -> None:
    assert len(constants(traced(lambda x: x[0] + np.ones(1000, np.float32) + np.ones(1000, np.float32)))) > 2


def test_it_ends_with_the_function_also_after_an_error() -> None:
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError, match="inside"), cheap_operations():
            raise ValueError("inside")
        tf.constant(1.0), tf.constant(1.0)
        assert len(graph.get_operations()) == 2
