"""Name scopes of instructions, which map errors of TensorFlow and XLA back to the user's line."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.mesh_impl.spmd.step_errors import collective_scope
from meshtf.planning.plan import Collective, Instruction, walk


def scope_name(number: int, instruction: Instruction) -> str:
    """The name scope of an instruction. A collective's scope also holds its kind and its mesh axes, which errors
    need."""
    if isinstance(instruction, Collective):
        return collective_scope(number, instruction.step.kind, instruction.step.axes)
    return f"{type(instruction).__name__}_{number}"


def origins(instructions: Sequence[Instruction]) -> dict[str, str]:
    """The operation and the user's line of each instruction, by its name scope up to the first dot."""
    return {scope_name(number, i).split(".")[0]: _origin(i) for number, (i, _) in enumerate(walk(instructions))}


def _origin(instruction: Instruction) -> str:
    members = instruction.members if isinstance(instruction, Collective) else ()
    operations = [m.operation for m in members] or [instruction.operation]
    return "; ".join(dict.fromkeys(o.where for o in operations))
