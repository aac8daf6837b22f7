"""Tensors that every core holds whole, so that splitting the program saves none of their memory, and the reasons
why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from meshtf.axis_parts import AxisParts
from meshtf.layout import axes_size
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Collective, Compute, Feed, Instruction, Loop, Plan, ReadVariable, Value, nested, walk

_LISTED = 0.01
"""The share of the peak below which a tensor is not listed."""


@dataclasses.dataclass(frozen=True, slots=True)
class WholeTensorRecord:
    """A tensor that every core holds whole, and that takes more than a hundredth of the peak.

    Attributes:
      name: the name of the variable or the input, else of the operation.
      filename, line, function: the line of its operation.
      shape: its named shape.
      dtype: its dtype.
      bytes: bytes on each core.
      why: the reason why it is whole.
    """

    name: str
    filename: str
    line: int
    function: str
    shape: str
    dtype: str
    bytes: int
    why: str


def whole_tensors(plan: Plan, layouts: LayoutTable, peak: int) -> list[WholeTensorRecord]:
    """Returns one record for each tensor, the largest first, and none on a mesh of one core. Views are left out."""
    if plan.mesh_shape.size == 1:
        return []
    readers = _readers(plan)
    records = [
        _record(value, instruction, readers.get(value, []), layouts)
        for value, instruction in _held(plan)
        if value.slice_bytes > _LISTED * peak and not axes_size(tuple(value.layout.used), plan.mesh_shape) > 1
    ]
    return sorted(records, key=lambda record: -record.bytes)


def _held(plan: Plan) -> Iterator[tuple[Value, Instruction]]:
    """Yields the values that take memory, each with the instruction that makes it, in loops and branches too."""
    variables: set[str] = set()

    def of(instructions: tuple[Instruction, ...]) -> Iterator[tuple[Value, Instruction]]:
        for i in instructions:
            if isinstance(i, ReadVariable):
                if i.name not in variables:
                    yield i.output, i
                variables.add(i.name)
            elif isinstance(i, Loop):
                initial = {c.result: c.initial for c in i.carried}
                yield from ((v, i) for v in i.outputs if v not in initial)
            elif not (isinstance(i, Compute) and i.facts.is_view):
                yield from ((v, i) for v in i.outputs)
            yield from of(nested(i))

    yield from of(plan.instructions)


def _readers(plan: Plan) -> dict[Value, list[str]]:
    readers: dict[Value, list[str]] = {}
    for i, _ in walk(plan.instructions):
        for value in i.inputs if not isinstance(i, Loop) else ():
            readers.setdefault(value, []).append(i.operation.label)
    return readers


def _record(value: Value, instruction: Instruction, readers: list[str], layouts: LayoutTable) -> WholeTensorRecord:
    site = instruction.operation.site
    name = instruction.name if isinstance(instruction, ReadVariable | Feed) else instruction.operation.label
    why = _why(value, instruction, readers, layouts)
    place = (site.filename, site.line, site.function)
    return WholeTensorRecord(name, *place, str(value.shape), value.dtype.name, value.slice_bytes, why)


def _why(value: Value, instruction: Instruction, readers: list[str], layouts: LayoutTable) -> str:
    parts = layouts.axis_parts
    reader = f"{readers[0]} reads it whole" if readers else "it is a result"
    if value.pending:
        return f"each core has a term of a sum over {_joined(parts, value.pending)}, which is still pending"
    if isinstance(instruction, Feed):
        return f"an input that is not only cut into slices: {reader}" if readers else "an input"
    if isinstance(instruction, Collective):
        return f"{_done(instruction.step)} over {_joined(parts, instruction.step.axes)}: {reader}"
    if not value.shape.dims:
        return "it has no dimensions"
    axes = layouts.rule_set.axes(value.shape, ((), ())).items()
    split = [name for name, own in axes if axes_size(parts.axes_taken_apart(own), layouts.mesh_shape) > 1]
    if split:
        return f"made whole, though a rule splits {', '.join(split)}: {reader}"
    kept = " between steps" if isinstance(instruction, ReadVariable) else ""
    return f"no rule splits any of its dimensions{kept}: {', '.join(d.name for d in value.shape)}"


def _done(step: CollectiveStep) -> str:
    """Returns a word for the effect of a collective on its tensor."""
    if step.reduction is not None:
        return "summed" if step.reduction == "add" else f"reduced by {step.reduction}"
    return "gathered" if step.split_dim is None and step.destinations is None else "moved"


def _joined(parts: AxisParts, axes: tuple[str, ...]) -> str:
    return "+".join(parts.axes_joined(axes))
