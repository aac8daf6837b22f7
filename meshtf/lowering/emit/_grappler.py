"""Functions run as they were traced: TensorFlow's graph optimizer, Grappler, is off for them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf

from meshtf.tensorflow_private.function_calls import call_config, called_with


@contextlib.contextmanager
def grappler_off() -> Iterator[None]:
    """Traces and calls without Grappler, in this thread: the functions that are traced inside, and those called there.

    It would optimize a program anew for each core, and sum in a changing order. Of the function that starts all cores,
    it finds nothing to improve, and takes a second for it. What a function was called with is part of its identity:
    each call belongs inside.
    """
    with called_with(_without_grappler(call_config())):
        yield


@functools.lru_cache(maxsize=8)
def _without_grappler(config_proto: bytes) -> bytes:
    config = tf.compat.v1.ConfigProto.FromString(config_proto)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config.SerializeToString()
