"""Calls of traced functions, and where TensorFlow's graph optimizer is off."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow as tf

from meshtf.lowering.emit.function_calls import TracedFunction, grappler_off
from meshtf.tensorflow_private.function_calls import call_config


def is_off() -> bool:
    return disables_optimizer(call_config())


def disables_optimizer(config: bytes) -> bool:
    return tf.compat.v1.ConfigProto.FromString(config).graph_options.rewrite_options.disable_meta_optimizer


def test_it_is_off_inside_only() -> None:
    with grappler_off():
        assert is_off()
        with grappler_off():
            assert is_off()
        assert is_off()
    assert not is_off()
    with pytest.raises(ValueError, match="inside"), grappler_off():
        raise ValueError("inside")
    assert not is_off()


def test_other_threads_and_the_options_of_the_process_keep_theirs() -> None:
    before, others = tf.config.optimizer.get_experimental_options(), []
    with grappler_off():
        thread = threading.Thread(target=lambda: others.append(is_off()))
        thread.start()
        thread.join()
        assert tf.config.optimizer.get_experimental_options() == before
    assert others == [False]


def traced(body: object, *signature: tf.TensorSpec) -> TracedFunction:
    return TracedFunction(tf.function(body, autograph=False).get_concrete_function(*signature))


def test_a_traced_function_is_called_with_flat_tensors_and_what_it_has_captured() -> None:
    captured, variable = tf.constant([1.0, 2.0]), tf.Variable([10.0, 20.0])

    def body(x: tf.Tensor, handle: tf.Tensor) -> list[tf.Tensor]:
        before = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignVariableOp(resource=handle, value=before + x)
        return [before * captured, tf.cast(x, tf.int32)]

    function = traced(body, tf.TensorSpec([2]), tf.TensorSpec([], tf.resource))

    @tf.function(autograph=False)
    def twice(x: tf.Tensor) -> list[tf.Tensor]:
        return [*function([x, variable.handle]), *function([2.0 * x, variable.handle])]

    found = twice(tf.constant([3.0, 4.0]))
    for own, expected in zip(found, ([10, 40], [3, 4], [13, 48], [6, 8]), strict=True):
        np.testing.assert_array_equal(own, expected)
    np.testing.assert_array_equal(variable, [19, 32])
    graph = twice.get_concrete_function(tf.TensorSpec([2])).graph
    calls = [o for o in graph.get_operations() if o.type == "StatefulPartitionedCall"]
    assert len(calls) == 2
    assert len({call.get_attr("f").name for call in calls}) == 1
    assert all(disables_optimizer(call.get_attr("config_proto")) for call in calls)


def test_calls_without_effects_results_or_known_sizes() -> None:
    """One without effects waits for no other; one without results is called all the same."""
    variable = tf.Variable(1.0)
    pure = traced(lambda x: [tf.reshape(x, [2, 3])], tf.TensorSpec([6]))
    without = traced(lambda x: [variable.assign_add(x), []][1], tf.TensorSpec([]))

    @tf.function(autograph=False)
    def run(x: tf.Tensor) -> tf.Tensor:
        (y,) = pure([x])
        assert y.shape == [2, 3]
        assert y.op.type == "PartitionedCall"
        assert without([x[0]]) == []
        return y

    np.testing.assert_array_equal(run(tf.range(6.0) + 1.0), np.arange(1, 7).reshape(2, 3))
    assert float(variable) == 2
