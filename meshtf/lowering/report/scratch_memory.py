"""Memory that an instruction takes only while it runs, beside its inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Collection

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import axes_size
from meshtf.mesh_impl.spmd.group_facts import is_exchange
from meshtf.planning.plan import Collective, Loop, Value

_SUMMED_IN_FLOAT32 = (tf.bfloat16, tf.float16)


def collective_space(collective: Collective, mesh_shape: Shape) -> int:
    """Bytes that a collective takes beside its input and its output: what it receives, and copies that put blocks in
    order, which a leading dimension does without."""
    step, sent, whole = collective.step, collective.input, collective.output
    if axes_size(step.axes, mesh_shape) == 1 and step.kind != "permute":
        return 0
    if step.kind == "all_reduce":
        return sent.slice_bytes  # the neighbours' parts, before they are added
    if step.kind == "all_gather":
        return 0 if _leads(step.dim, whole) else whole.slice_bytes
    if step.kind == "reduce_scatter":
        cut = 0 if _leads(step.dim, sent) else sent.slice_bytes
        return cut + sent.slice_bytes + _widened(sent)
    if step.kind == "all_to_all":
        copies = (not _leads(step.dim, sent)) + (not _leads(step.concat_dim, whole))
        return copies * sent.slice_bytes
    gathers = 1 if is_exchange(step.destinations) else 2
    return gathers * 2 * sent.slice_bytes  # of two slices each


def stacking_space(loop: Loop, only_sliced: Collection[Value]) -> int:
    """Bytes of the parts that a loop has made, when they are copied to stand one behind the other.

    only_sliced: stacks that are never put together.
    """
    return sum(s.whole.slice_bytes for s in loop.stacked if s.whole not in only_sliced)


def _leads(dim: int, value: Value) -> bool:
    return math.prod(value.slice_shape[:dim]) == 1


def _widened(value: Value) -> int:
    """Bytes of a float32 copy of the terms that a sum of short numbers makes."""
    if value.dtype not in _SUMMED_IN_FLOAT32:
        return 0
    return value.slice_bytes // value.dtype.size * tf.float32.size
