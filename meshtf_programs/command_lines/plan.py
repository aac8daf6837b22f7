"""meshtf-plan."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.command_line import CommandLine
from meshtf_programs.command_lines.flag_groups import (
    define_gin_flags,
    define_layout_flags,
    define_recipe_flag,
)

PROGRAM = "meshtf-plan"


def answer(arguments: Sequence[str]) -> int | None:
    """Of `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="prints the report of a training step on a mesh that need not be there: memory and\n"
        "FLOPs per core, and every collective with its bytes. Nothing is trained and no weight is made.",
        usage=f"{PROGRAM} --gin_file=NAME [--gin_param=BINDING ...] [--mesh_shape=...] [--layout=RULES]",
        examples=[
            f"{PROGRAM} --gin_file=lm_tiny.gin --mesh_shape='rows:32;cols:4'",
            f"{PROGRAM} --gin_file=lm_tiny.gin --gin_file=llama_2_70b.gin --mesh_shape='rows:64;cols:8' "
            "--gin_param='TextTask.length=4096' --gin_param='Training.batch_size=1024'",
        ],
        required=["gin_file"],
    )
    define_gin_flags(line.flags)
    define_recipe_flag(line.flags)
    define_layout_flags(line.flags)
    flags.DEFINE_integer(
        "processes",
        None,
        "Over how many processes the mesh is laid; overrides Training.num_processes. The report says which bytes go "
        "between them.",
        lower_bound=1,
        flag_values=line.flags,
    )
    flags.DEFINE_string(
        "machine",
        None,
        "Machine on which to predict the time of a step: v2, v3, v4, v5e, v5p, a100, h100, or the path of a file that "
        "describes one.",
        flag_values=line.flags,
    )
    return line
