"""Equal constants of a traced function are one operation."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from typing import Any, cast

import tensorflow as tf

_LARGEST = 1024
"""Bytes. What is larger is hardly there twice, and would be copied to be compared."""


@contextlib.contextmanager
def constants_shared() -> Iterator[None]:
    """Inside, a constant that the function being traced has already is not made again.

    Sizes of reshapes and axes of sums were more than a third of the operations of a training step, each of which
    TensorFlow places, partitions and starts anew for every core; Grappler, which would merge them, is off. Functions
    called inside, and bodies of loops, are graphs of their own.
    """
    graph = cast("Any", tf.compat.v1.get_default_graph())
    create = graph._create_op_internal
    made: dict[Hashable, tf.Operation] = {}

    def create_or_share(op_type: str, *arguments: Any, **options: Any) -> tf.Operation:
        if op_type != "Const" or options["attrs"]["value"].ByteSize() > _LARGEST:
            return create(op_type, *arguments, **options)
        key = (options["attrs"]["value"].SerializeToString(), *graph._device_functions_outer_to_inner)
        if key not in made:
            # What shares it does not wait for what this place would wait for.
            with graph.control_dependencies(None):
                made[key] = create(op_type, *arguments, **options)
        return made[key]

    graph._create_op_internal = create_or_share
    try:
        yield
    finally:
        del graph._create_op_internal
