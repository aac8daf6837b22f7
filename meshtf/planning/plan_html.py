"""A plan as HTML for notebooks: a row for each instruction; loops and branches unfold."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from meshtf.errors import counted
from meshtf.markup import Markup, block, element, folded, grid

if TYPE_CHECKING:
    from meshtf.planning.plan import Instruction, Plan

_MOST_ROWS = 300
"""The most instructions of one list that are shown."""


def plan_html(plan: Plan, nested: Callable[[Instruction], Sequence[Instruction]]) -> Markup:
    """Renders a plan as HTML. `nested` returns the instructions inside a loop or a branch."""
    counts = collections.Counter(type(i).__name__ for i in plan.instructions)
    head = f"plan for {counted(plan.mesh_shape.size, 'core')}, mesh [{plan.mesh_shape}]"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    results = [(str(value),) for value in plan.fetches]
    return block(
        element("p", element("b", head)),
        folded(f"{counted(len(plan.instructions), 'instruction')}: {kinds}", _listed(plan.instructions, nested)),
        folded(counted(len(results), "result"), grid((), results)),
        folded(counted(len(plan.checks), "check"), grid((), [(check.operation.where,) for check in plan.checks])),
    )


def _listed(instructions: Sequence[Instruction], nested: Callable[[Instruction], Sequence[Instruction]]) -> Markup:
    rows = [_row(i, nested) for i in instructions[:_MOST_ROWS]]
    more = len(instructions) - _MOST_ROWS
    titles = ("instruction", "makes", "of", "operation", "line")
    return grid(titles, [*rows, *([f"and {more:,} more"] if more > 0 else [])])


def _row(instruction: Instruction, nested: Callable[[Instruction], Sequence[Instruction]]) -> tuple[str, ...]:
    step = getattr(instruction, "step", None)
    name = getattr(instruction, "name", "") or getattr(instruction, "kind", "") or (step.kind if step else "")
    what = f"{type(instruction).__name__} {name}".strip()
    if step is not None:
        what += f" over {'+'.join(step.axes)}"
    if inside := nested(instruction):
        what = folded(f"{what}: {counted(len(inside), 'instruction')}", _listed(inside, nested))
    made = "\n".join(map(str, instruction.outputs))
    used = " ".join(f"%{value.index}" for value in instruction.inputs)
    operation = instruction.operation
    return what, made, used, operation.label, operation.site.place
