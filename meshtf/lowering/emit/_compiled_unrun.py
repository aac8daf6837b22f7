"""Functions that XLA compiles, compiled before a program runs them."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.lowering.emit._grappler import grappler_off
from meshtf.lowering.emit._traced_function import traced_function
from meshtf.mesh_impl.virtual_cpus import num_processors

CompileToo = Callable[[tf.types.experimental.ConcreteFunction], None]
"""Has one more function compiled, which has been traced meanwhile."""


@contextlib.contextmanager
def compiled_meanwhile(
    functions: Sequence[tf.types.experimental.ConcreteFunction], device: str
) -> Iterator[CompileToo]:
    """Inside, a thread has XLA compile functions, none of which it runs: where a program calls one of them, it is found
    compiled, or waited for.

    What fails there is left to the program, which says where.

    Args:
      functions: of tensors; one that takes variables is left to the program.
      device: where the program calls them.
    """
    calls: queue.SimpleQueue[tf.types.experimental.ConcreteFunction | None] = queue.SimpleQueue()
    thread = threading.Thread(target=_run, args=(calls, device), name="compiled_meanwhile")
    is_over = num_processors() == 1  # what is compiled meanwhile would only be in the way

    def compile_too(function: tf.types.experimental.ConcreteFunction) -> None:
        if is_over or any(x.dtype == tf.resource for x in cast("Any", function).inputs):
            return
        with tf.init_scope():
            calls.put(_compilation(function))
        if thread.ident is None:
            thread.start()

    for function in functions:
        compile_too(function)
    try:
        yield compile_too
    finally:
        is_over = True
        if thread.ident is not None:
            calls.put(None)
            thread.join()


def _compilation(function: tf.types.experimental.ConcreteFunction) -> tf.types.experimental.ConcreteFunction:
    """A function of the same arguments, of which the shapes and dtypes matter alone, that has it compiled."""
    signature = [tf.TensorSpec(x.shape, x.dtype) for x in cast("Any", function).inputs]

    def compiled(*given: tf.Tensor) -> list[tf.Tensor]:
        graph = cast("Any", tf.compat.v1.get_default_graph())
        cast("Any", function).add_to_graph(graph)
        attributes = {
            "must_compile": tf.compat.v1.AttrValue(b=True),
            "function": tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=cast("Any", function).name)),
            "Tconstants": tf.compat.v1.AttrValue(list={"type": []}),
            "Targs": tf.compat.v1.AttrValue(list={"type": [x.dtype.as_datatype_enum for x in given]}),
            "Nresources": tf.compat.v1.AttrValue(i=0),
        }
        # No public name compiles a function where calls of it find it.
        made = graph._create_op_internal("_XlaCompile", given, [tf.string, tf.bool], name="compile", attrs=attributes)
        return [made.outputs[1]]

    return traced_function(compiled, signature, "compiled")


def _run(calls: queue.SimpleQueue[tf.types.experimental.ConcreteFunction | None], device: str) -> None:
    while (call := calls.get()) is not None:
        with contextlib.suppress(tf.errors.OpError), grappler_off(), tf.device(device):
            # Memory that nobody writes to is none.
            given = [tf.raw_ops.Empty(shape=x.shape, dtype=x.dtype) for x in cast("Any", call).inputs]
            cast("Any", call)(*given)
