"""Functions run as they were traced: TensorFlow's graph optimizer, Grappler, is off for them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context


@contextlib.contextmanager
def grappler_off() -> Iterator[None]:
    """Traces and calls without Grappler, in this thread: the functions that are traced inside, and those called there.

    It would optimize a program anew for each core, and sum in a changing order. Of the function that starts all cores,
    it finds nothing to improve, and takes a second for it. What a function was called with is part of its identity:
    each call belongs inside.
    """
    # The public `tf.config.optimizer.set_experimental_options` is of the process, and slow for a call of each step.
    eager = cast("Any", context.context())
    own = eager.function_call_options
    eager.function_call_options = _without_grappler(own.executor_type, own.config_proto_serialized)
    try:
        yield
    finally:
        eager.function_call_options = own


@functools.lru_cache(maxsize=8)
def _without_grappler(executor_type: str | None, config_proto: bytes) -> context.FunctionCallOptions:
    config = tf.compat.v1.ConfigProto.FromString(config_proto)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return context.FunctionCallOptions(executor_type, config)
