"""The collectives that an HLO has, and those that a plan asks for."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

import numpy as np

from meshtf.mesh_impl.processor_groups import ordered_groups
from meshtf.planning.plan import Plan
from meshtf.tensorflow_private.xla_modules import parsed_hlo

_KINDS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "reduce-scatter": "reduce_scatter",
    "collective-permute": "permute",
}
_BITS = {"PRED": 8, "BF16": 16, "C64": 64, "C128": 128}  # others have theirs in the name, as S32


@dataclasses.dataclass(frozen=True)
class CollectiveOp:
    """One instruction: its kind, the cores of each group by position (of a permute, the pairs), and the operand."""

    kind: str
    groups: tuple[tuple[int, ...], ...]
    operand_bytes: int

    @property
    def bytes_sent(self) -> int:
        """By each core, with the best algorithm."""
        n = len(self.groups[0])
        if self.kind == "permute":
            return self.operand_bytes
        if self.kind == "all_gather":
            return self.operand_bytes * (n - 1)
        return (2 if self.kind == "all_reduce" else 1) * self.operand_bytes * (n - 1) // n


def collectives_of_hlo(hlo: bytes) -> collections.Counter[CollectiveOp]:
    """Of a serialized HloModuleProto."""
    module = parsed_hlo(hlo)
    found: collections.Counter[CollectiveOp] = collections.Counter()
    for computation in module.computations:
        by_id = {i.id: i for i in computation.instructions}
        for i in computation.instructions:
            if i.opcode in _KINDS:
                (operand,) = (by_id[number] for number in i.operand_ids)
                found[CollectiveOp(_KINDS[i.opcode], _groups(i), _bytes(operand.shape))] += 1
    return found


def collectives_of_plan(plan: Plan) -> collections.Counter[CollectiveOp]:
    found: collections.Counter[CollectiveOp] = collections.Counter()
    for c in plan.collectives:
        if c.step.kind == "permute":
            groups = np.stack([np.arange(len(c.step.destinations)), c.step.destinations], axis=1)
        else:
            groups = ordered_groups(plan.mesh_shape, c.step.axes)
        found[CollectiveOp(c.step.kind, tuple(map(tuple, groups.tolist())), c.input.slice_bytes)] += 1
    return found


def _groups(instruction: Any) -> tuple[tuple[int, ...], ...]:
    if instruction.opcode == "collective-permute":
        return tuple((pair.source, pair.target) for pair in instruction.source_target_pairs)
    groups = instruction.replica_groups or instruction.collective_device_list.replica_groups
    return tuple(tuple(group.replica_ids) for group in groups)


def _bytes(shape: Any) -> int:
    enum = shape.DESCRIPTOR.fields_by_name["element_type"].enum_type
    name = enum.values_by_number[shape.element_type].name
    return math.prod(shape.dimensions) * (_BITS.get(name) or int(name[1:])) // 8
