"""Undocumented names of TensorFlow's state, its calls of functions, its variables and its server."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf

from tests.tensorflow_private.private_name import PrivateName, runtime_state

_CONTEXT = "tensorflow.python.eager.context"


def _is_one_object(context: Any) -> None:
    assert context() is context()


def _is_a_handle_when_started(_: Any) -> None:
    tf.constant(0)
    assert runtime_state()._context_handle is not None


def _runs_eagerly_in_a_graph(eager_mode: Any) -> None:
    with tf.Graph().as_default():
        assert not tf.executing_eagerly()
        with eager_mode():
            assert int(tf.constant(3)) == 3


def _has_the_config(options: Any) -> None:
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=7)
    made = options(None, config)
    assert tf.compat.v1.ConfigProto.FromString(made.config_proto_serialized).operation_timeout_in_ms == 7


def _is_of_a_thread(options: Any) -> None:
    assert options.fset is not None, "it cannot be set"
    state, seen = runtime_state(), []
    own = state.function_call_options
    try:
        state.function_call_options = type(own)(None, tf.compat.v1.ConfigProto(operation_timeout_in_ms=7))
        thread = threading.Thread(target=lambda: seen.append(state.function_call_options.config_proto_serialized))
        thread.start()
        thread.join()
        assert seen == [own.config_proto_serialized], "other threads see it"
    finally:
        state.function_call_options = own


def _has_settings(config: Any) -> None:
    assert isinstance(config.fget(runtime_state()), tf.compat.v1.ConfigProto)


def _takes_a_value(make_handle: Any) -> None:
    value = tf.constant([1, 2])
    handle = make_handle(value.shape, value.dtype, shared_name=None, name="x", graph_mode=False, initial_value=value)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    assert tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int32).numpy().tolist() == [1, 2]


def _is_a_variable(kind: Any) -> None:
    assert issubclass(kind, tf.Variable)


RUNTIME = (
    PrivateName(_CONTEXT, "context", "eager_context", "reach TensorFlow's state", (), _is_one_object),
    PrivateName(
        _CONTEXT,
        "Context._context_handle",
        "eager_context",
        "know whether TensorFlow has started",
        behaves=_is_a_handle_when_started,
        owner=runtime_state,
    ),
    PrivateName(
        _CONTEXT, "eager_mode", "eager_context", "run at once in graphs of TensorFlow 1", (), _runs_eagerly_in_a_graph
    ),
    PrivateName(
        _CONTEXT,
        "FunctionCallOptions",
        "function_calls",
        "call functions with other settings",
        ("executor_type", "config_proto"),
        _has_the_config,
    ),
    PrivateName(
        _CONTEXT,
        "Context.function_call_options",
        "function_calls",
        "switch the graph optimizer off for a thread",
        (),
        _is_of_a_thread,
    ),
    PrivateName(
        _CONTEXT,
        "Context.configure_collective_ops",
        "cluster_server",
        "join processes",
        ("use_nccl_communication", "collective_leader"),
    ),
    PrivateName(
        _CONTEXT,
        "Context.configure_coordination_service",
        "cluster_server",
        "join processes, with time limits",
        (
            "service_type",
            "service_leader",
            "cluster_register_timeout_in_ms",
            "heartbeat_timeout_in_ms",
            "shutdown_barrier_timeout_in_ms",
            "coordinated_jobs",
        ),
    ),
    PrivateName(_CONTEXT, "Context.config", "cluster_server", "give its settings to the server", (), _has_settings),
    PrivateName(_CONTEXT, "Context.enable_collective_ops", "cluster_server", "start with a server", ("server_def",)),
    PrivateName(_CONTEXT, "Context.ensure_initialized", "cluster_server", "start"),
    PrivateName(
        _CONTEXT, "Context.abort_collective_ops", "cluster_server", "end collectives that wait", ("code", "message")
    ),
    PrivateName(_CONTEXT, "Context.set_config_key_value", "cluster_server", "keep a text", ("key", "value")),
    PrivateName(_CONTEXT, "Context.get_config_key_value", "cluster_server", "wait for a text", ("key",)),
    PrivateName(_CONTEXT, "Context.delete_config_key_value", "cluster_server", "forget a text", ("key",)),
    PrivateName(
        "tensorflow.python.ops.resource_variable_ops",
        "_variable_handle_from_shape_and_dtype",
        "variable_handles",
        "make many variables in little time",
        ("shape", "dtype", "shared_name", "name", "graph_mode", "initial_value"),
        _takes_a_value,
    ),
    PrivateName(
        "tensorflow.python.ops.resource_variable_ops",
        "BaseResourceVariable",
        "variable_handles",
        "make a variable of a handle",
        ("trainable", "shape", "dtype", "handle", "handle_name", "unique_id", "initial_value", "in_graph_mode"),
        _is_a_variable,
    ),
)
