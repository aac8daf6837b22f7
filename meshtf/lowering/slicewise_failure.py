"""Finds where a user's function failed while a program ran: the core and its slices."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.errors import CollectiveError, ExecutionError, MeshtfError
from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.host_array import host_array
from meshtf.lowering.feeding import Fed
from meshtf.lowering.interpreter import Interpreter, KnownCore
from meshtf.mesh_impl.spmd.step_errors import lost_its_text, short_text
from meshtf.ops.slicewise.slicewise import SlicewiseOperation
from meshtf.planning import core_positions
from meshtf.planning.plan import Compute, Plan, Value, walk

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering

_MOST_BYTES = 1 << 30
"""The most bytes of tensors that are computed again in NumPy. An error must come soon, and must not exhaust memory."""


def slicewise_failure(
    error: MeshtfError, plan: Plan, lowering: Lowering, feeds: Sequence[Fed]
) -> ExecutionError | None:
    """The error of a slicewise function, with the core on which it failed, which TensorFlow does not report, and its
    slices.

    TensorFlow reports the first error that it receives: the function's own, or only that of a cancelled collective. So
    the function's operands are computed again without devices, and the function runs on the slices of one core after
    another. Returns None if `error` has another cause, the function does not fail again, or recomputation would take
    too much memory.
    """
    if len({(d.job, d.replica, d.task) for d in map(tf.DeviceSpec.from_string, lowering.device_mesh.devices)}) > 1:
        return None  # the slices of other processes are not available
    arrays = {f.name: host_array(x) for f, x in zip(plan.feeds, feeds, strict=True)}
    for operation in _suspects(error, lowering):
        again = lowering.plan_for(list(operation.outputs), effects=())
        if not _is_small(again) or not all(name in lowering.variables for name in again.variable_names):
            return None
        held = {n: [host_array(x) for x in lowering.variables.slices(n).slices] for n in again.variable_names}
        try:
            _Again(again, held).run(arrays)
        except _FailedError as failed:
            text = failed.text
            return ExecutionError(
                f"{text}\nThe process must be restarted." if isinstance(error, CollectiveError) else text
            )
        except Exception:  # work before it failed, or the function does not always fail: nothing is known then
            return None
    return None


def _suspects(error: MeshtfError, lowering: Lowering) -> Iterator[Operation]:
    """The slicewise operations that may have failed: the operations of the error's line, or all if it names no line."""
    is_lost = lost_its_text(error)
    if not is_lost and not isinstance(error, ExecutionError):
        return
    for operation in lowering.graph.operations:
        own = [o for o in with_nested([operation]) if isinstance(o, SlicewiseOperation)]
        if any(is_lost or str(o.site) in str(error) for o in own):
            yield operation


def _is_small(plan: Plan) -> bool:
    computed = sum(times * sum(v.slice_bytes for v in i.outputs) for i, times in walk(plan.instructions))
    return computed * plan.mesh_shape.size <= _MOST_BYTES


class _FailedError(Exception):
    """A slicewise failed on a core."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _Again(Interpreter):
    """Raises _FailedError at a slicewise that fails."""

    def _compute(self, instruction: Compute, slices: Mapping[Value, list[np.ndarray]]) -> dict[Value, list[np.ndarray]]:
        if isinstance(instruction.operation, SlicewiseOperation):
            for core in self._range:
                own = [slices[v][core] for v in instruction.inputs]
                # The function runs in a graph, as in the program, so that an error raised in Python becomes
                # TensorFlow's.
                local = tf.function(functools.partial(instruction.emit, KnownCore(self.plan, core)), autograph=False)
                try:
                    local(*map(tf.constant, own))
                except tf.errors.OpError as error:
                    raise _FailedError(_text(instruction, self.plan, core, own, short_text(error))) from None
        return super()._compute(instruction, slices)


def _text(instruction: Compute, plan: Plan, core: int, slices: Sequence[np.ndarray], fact: str) -> str:
    operation = instruction.operation
    own = core_positions.coordinates(core, plan.mesh_shape)
    place = " ".join(f"{axis}:{position}" for axis, position in own.items())
    lines = [f"{operation.name}: tf_fn failed on core {core} ({place}): {fact}", "  slices given to tf_fn:"]
    for value, part in zip(instruction.inputs, slices, strict=True):
        block = core_positions.block(core, value.layout.axes, plan.mesh_shape)
        begins = [position * size for position, size in zip(block, part.shape, strict=True)]
        cuts = " ".join(
            f"{d.name}:{begin}..{begin + size - 1}"
            for d, begin, size in zip(value.shape, begins, part.shape, strict=True)
        )
        lines.append(f"    [{cuts}] {value.dtype.name} of [{value.layout.to_string(value.shape)}]{_range(part)}")
    return "\n".join([*lines, f"  at {operation.site}"])


def _range(part: np.ndarray) -> str:
    if not part.size or not np.issubdtype(part.dtype, np.number) or np.iscomplexobj(part):
        return ""
    return f", values from {part.min()} to {part.max()}"
