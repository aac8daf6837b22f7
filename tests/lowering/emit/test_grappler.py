from __future__ import annotations

import threading

import pytest
import tensorflow as tf

from meshtf.lowering.emit._grappler import grappler_off
from meshtf.tensorflow_private.function_calls import call_config


def is_off() -> bool:
    config = tf.compat.v1.ConfigProto.FromString(call_config())
    return config.graph_options.rewrite_options.disable_meta_optimizer


def test_it_is_off_inside_only() -> None:
    with grappler_off():
        assert is_off()
        with grappler_off():
            assert is_off()
        assert is_off()
    assert not is_off()


def test_it_is_on_again_after_an_error() -> None:
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


def test_a_function_keeps_the_calls_as_they_were_traced() -> None:
    with grappler_off():
        inner = tf.function(lambda x: x + 1.0, autograph=False, experimental_attributes={"_noinline": True})
        graph = tf.function(inner, autograph=False).get_concrete_function(tf.TensorSpec([])).graph
    (call,) = [o for o in graph.get_operations() if o.type == "PartitionedCall"]
    config = tf.compat.v1.ConfigProto.FromString(call.get_attr("config_proto"))
    assert config.graph_options.rewrite_options.disable_meta_optimizer
