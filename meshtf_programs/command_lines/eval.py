"""The command line of meshtf-eval."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_checkpoint_flags,
    define_gin_param,
    define_mesh_flags,
)

PROGRAM = "meshtf-eval"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="evaluates a checkpoint of a run on held-out examples, on any mesh and layout.\n"
        "It prints the means and appends them to evaluations.jsonl in the run's folder, if it may write there.",
        usage=f"{PROGRAM} --model_dir=FOLDER [--step=N] [--weights=average] [--mesh_shape=...] [--layout=RULES ...]",
        examples=[
            f"{PROGRAM} --model_dir=runs/digits_mlp",
            f"{PROGRAM} --model_dir=runs/digits_mlp --step=300 --mesh_shape='cores:1' --layout=''",
            f"{PROGRAM} --model_dir=runs/digits_mlp --gin_param='Training.batch_size=128'",
        ],
        required=["model_dir"],
    )
    define_checkpoint_flags(line.flags)
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line
