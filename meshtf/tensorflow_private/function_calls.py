"""The settings with which traced functions are called.

Public alternatives that are not sufficient:

- `Context.function_call_options`: `tf.config.optimizer.set_experimental_options` sets the optimizer of the whole
  process, also for other threads, and is too slow to call in each step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context

from meshtf.tensorflow_private.eager_context import running


def call_config() -> bytes:
    """The serialized `ConfigProto` with which functions are traced and called in this thread."""
    return running().function_call_options.config_proto_serialized


@contextlib.contextmanager
def called_with(config: bytes) -> Iterator[None]:
    """A context in which functions are traced and called with another `ConfigProto`, in this thread."""
    own = running().function_call_options
    running().function_call_options = _options(own.executor_type, config)
    try:
        yield
    finally:
        running().function_call_options = own


@functools.lru_cache(maxsize=8)
def _options(executor_type: str | None, config: bytes) -> Any:
    return cast("Any", context).FunctionCallOptions(executor_type, tf.compat.v1.ConfigProto.FromString(config))
