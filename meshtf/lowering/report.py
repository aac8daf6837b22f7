"""What a program does on its mesh, as data and as text."""

from __future__ import annotations

import dataclasses

from meshtf.lowering.layouts import LayoutTable
from meshtf.lowering.plan import Plan


@dataclasses.dataclass(frozen=True)
class CollectiveRecord:
    """One collective: who asked for it, where, over which axes, and the bytes that each core sends."""

    kind: str
    operation: str
    site: str
    axes: tuple[str, ...]
    bytes_sent: int
    tensor: str


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of a program."""

    program: str
    collectives: tuple[CollectiveRecord, ...]

    @classmethod
    def of(cls, plan: Plan, layouts: LayoutTable, program: str) -> Report:
        records = tuple(
            CollectiveRecord(
                c.step.kind,
                c.operation.name,
                str(c.operation.site),
                c.step.axes,
                c.step.bytes_sent(c.input.slice_bytes, plan.mesh_shape),
                c.input.layout.to_string(c.input.shape),
            )
            for c in plan.collectives
        )
        return cls(program, records)

    def __str__(self) -> str:
        lines = [f'program "{self.program}": {len(self.collectives)} collectives']
        lines += [
            f"  {c.kind} over {'+'.join(c.axes)}: {c.bytes_sent} bytes, [{c.tensor}], {c.operation}, at {c.site}"
            for c in self.collectives
        ]
        return "\n".join(lines)
