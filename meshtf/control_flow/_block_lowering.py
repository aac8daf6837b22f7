"""Functions that lower the blocks of loops, branches and inline operations."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.planning.local_work.adding_in_place import Zeros
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.stored_variables import StoredVariable


def lower_operations(operations: Sequence[Operation], owner: Operation, inner: Planner, outer: Planner) -> None:
    """Lowers the operations of a block.

    Work that `inner` plans afterwards is attributed to `owner`, the operation that contains the block.
    """
    for each in operations:
        inner.lower(each)
    inner.record.operation = owner
    outer.uses_random |= inner.uses_random


def assigned_variables(operations: Sequence[Operation]) -> dict[str, StoredVariable]:
    """The variables that operations, or operations in their blocks, assign, by name."""
    return {
        o.variable.full_name: o.variable  # type: ignore[attr-defined]
        for o in with_nested(operations)
        if o.has_side_effect and hasattr(o, "variable")
    }


def constant_like(planner: Planner, like: Value, number: int, after: Sequence[Value] = ()) -> Value:
    """A constant with the shape, dtype and layout of `like`, filled with `number` after the values `after` exist."""
    size, dtype = like.slice_shape, like.dtype

    def filled(core: Core, *awaited: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(awaited):
            return tf.fill(size, tf.cast(number, dtype))

    emit = filled if number else Zeros(size, dtype)
    spec, facts = (like.shape, like.dtype, like.layout), WorkFacts(is_trivial=True)
    return planner.compute("constant", emit, after, [spec], pending=like.pending, facts=facts)[0]
