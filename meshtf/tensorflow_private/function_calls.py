"""How traced functions are called: with which settings, and how with the least work for each call.

Public ways that do not do:

- `Context.function_call_options`: `tf.config.optimizer.set_experimental_options` sets the optimizer of the whole
  process, for other threads too, and is slow for a call in each step.
- `Context.call_function`: calling a `ConcreteFunction` binds its arguments to its signature, asks the gradient tapes,
  and prepares to look errors up in its graph. That takes a tenth of a millisecond for some dozens of variables.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context

from meshtf.tensorflow_private.eager_context import running


def call_config() -> bytes:
    """The serialized `ConfigProto` with which functions are traced and called in this thread."""
    return running().function_call_options.config_proto_serialized


@contextlib.contextmanager
def called_with(config: bytes) -> Iterator[None]:
    """Traces and calls functions with another `ConfigProto` inside, in this thread."""
    own = running().function_call_options
    running().function_call_options = _options(own.executor_type, config)
    try:
        yield
    finally:
        running().function_call_options = own


@functools.lru_cache(maxsize=8)
def _options(executor_type: str | None, config: bytes) -> Any:
    return cast("Any", context).FunctionCallOptions(executor_type, tf.compat.v1.ConfigProto.FromString(config))


def call_eagerly(name: str, arguments: Sequence[tf.Tensor], num_results: int) -> Sequence[tf.Tensor]:
    """Calls a function that TensorFlow knows by this name, outside of any trace, while no tape records.

    Args:
      name: the name of a traced function.
      arguments: its inputs in their order, with their shapes and dtypes; captured inputs come last.
      num_results: the number of its results.
    """
    return running().call_function(name, [*arguments], num_results)
