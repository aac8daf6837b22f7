"""Lowers an inline block: its instructions become instructions of the enclosing program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.control_flow._block_lowering import lower_operations
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.pending_sums import needed_inside
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner

if TYPE_CHECKING:
    from meshtf.control_flow._inline_block import InlineOperation


def lower_inline(operation: InlineOperation, planner: Planner) -> None:
    """Lowers the block's operations into the program. The block's outputs become the operation's."""
    block, waits = operation.block, bool(operation.awaited)
    leaving = dict(zip(block.outputs, operation.outputs, strict=True))
    inner = planner.inside(operation.pending_sums(planner.layouts), () if waits else operation.captures, leaving)
    _give(operation, planner, inner)
    lower_operations(needed_inside(block), operation, inner, planner)
    values = [inner.tensors.left(t) for t in block.outputs]
    for instruction in inner.record.instructions:
        planner.record.add(instruction)
    for output, value in zip(operation.outputs, values, strict=True):
        planner.write(output, value)
    for name, value in inner.variables.assigned.items():
        planner.variables.assign(name, value)
    for check in inner.checks.open:
        planner.checks.add(check)


def _give(operation: InlineOperation, planner: Planner, inner: Planner) -> None:
    signal = [planner.tensors.held(t) for t in operation.awaited]
    given = list(operation.given)
    kept = {*operation.explicit, *(inside for _, inside in given)}
    if signal:
        given += [(x, x) for x in operation.captures if x not in operation.awaited]
        for x in operation.awaited:
            inner.tensors.give(x, planner.read(x, fill=None))
    for outside, inside in given:
        value = planner.read(outside, fill=None)
        inner.tensors.give(inside, _after(planner, value, signal, waits=inside in kept) if signal else value)


def _after(planner: Planner, value: Value, signal: Sequence[Value], *, waits: bool) -> Value:
    """Returns the value, delayed until `signal` is computed.

    TensorFlow and XLA would otherwise merge recomputation with the first computation. With the delay, recomputation
    runs when its results are needed, and the first results need not be kept. In programs for XLA, only values with
    `waits` are delayed. XLA recomputes others, such as masks, where they are used.
    """

    def emit(core: Core, x: tf.Tensor, *awaited: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies(awaited):
            return tf.identity(x)

    spec = (value.shape, value.dtype, value.layout)
    return planner.compute("wait", emit, [value, *signal], [spec], facts=WorkFacts(is_view=True, waits=waits))[0]
