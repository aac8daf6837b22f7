"""The costs of padding: dimensions that a layout splits into equal parts although the number of parts does not divide
them."""

from __future__ import annotations

import dataclasses

from meshtf.axis_parts import AxisParts
from meshtf.layout import Axes, axes_size, padding_share
from meshtf.lowering.report import accounting
from meshtf.planning.plan import Compute, Plan, Value, walk


@dataclasses.dataclass(frozen=True, slots=True)
class PaddingRecord:
    """A dimension whose last slices are padded.

    Attributes:
      dimension: its name.
      size: its size.
      axes: the mesh axes that split it.
      parts: the number of parts.
      padded: the total size that the cores hold, with padding.
      share: the share of `padded` that is padding.
      flops: an upper bound on the FLOPs that a core spends on padding, averaged over all cores.
      bytes: bytes of padding in a core's variables.
    """

    dimension: str
    size: int
    axes: Axes
    parts: int
    padded: int
    share: float
    flops: int
    bytes: int


def padding_records(plan: Plan, axis_parts: AxisParts) -> list[PaddingRecord]:
    """Returns a record for each dimension and each way to split it, the most expensive first."""
    costs: dict[tuple[str, int, Axes], list[float]] = {}
    for instruction, times in walk(plan.instructions):
        work = times * instruction.flops if isinstance(instruction, Compute) else 0
        for key in {key for value in (*instruction.inputs, *instruction.outputs) for key in _uneven(value, plan)}:
            costs.setdefault(key, [0, 0])[0] += work * _share(key, plan)
    for value in accounting.stored_variables(plan).values():
        for key in _uneven(value, plan):
            costs.setdefault(key, [0, 0])[1] += value.slice_bytes * _share(key, plan)
    found = [_record(key, flops, stored, plan, axis_parts) for key, (flops, stored) in costs.items()]
    return sorted(found, key=lambda record: (-record.flops, -record.bytes))


def _uneven(value: Value, plan: Plan) -> list[tuple[str, int, Axes]]:
    own = zip(value.shape, value.layout.axes, strict=True)
    return [(d.name, d.size, axes) for d, axes in own if d.size % axes_size(axes, plan.mesh_shape)]


def _share(key: tuple[str, int, Axes], plan: Plan) -> float:
    _, size, axes = key
    return padding_share(size, axes_size(axes, plan.mesh_shape))


def _record(
    key: tuple[str, int, Axes], flops: float, stored: float, plan: Plan, axis_parts: AxisParts
) -> PaddingRecord:
    name, size, axes = key
    parts = axes_size(axes, plan.mesh_shape)
    return PaddingRecord(
        dimension=name,
        size=size,
        axes=axis_parts.axes_joined(axes),
        parts=parts,
        padded=-(-size // parts) * parts,
        share=_share(key, plan),
        flops=round(flops),
        bytes=round(stored),
    )
