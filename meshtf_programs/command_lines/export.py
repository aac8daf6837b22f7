"""The command line of meshtf-export."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_checkpoint_flags,
    define_decoding_flags,
    define_gin_param,
)
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-export"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="writes a checkpoint of a run as a SavedModel for one device, whatever mesh it was trained on.\n"
        "Plain TensorFlow loads and runs it. A model of text has the signatures score and generate, and a\n"
        "classifier has predict.",
        usage=f"{PROGRAM} --model_dir=FOLDER --output=FOLDER [--step=N] [--method=METHOD ...]",
        examples=[
            f"{PROGRAM} --model_dir=runs/lm_tiny --output=exported/lm_tiny",
            f"{PROGRAM} --model_dir=runs/lm_tiny --output=exported/sampled --method=sample --top_p=0.9",
            f"{PROGRAM} --model_dir=runs/digits_mlp --output=exported/digits --batch_size=32 --max_gib=2",
        ],
        required=["model_dir", "output"],
    )
    define_checkpoint_flags(line.flags)
    define_path(line.flags, "output", None, "The folder to write, which is not there yet.")
    flags.DEFINE_float(
        "max_gib",
        None,
        "The most GiB that the model may need while it runs; by default the memory that is left.",
        lower_bound=0.0,
        flag_values=line.flags,
    )
    define_decoding_flags(line.flags)
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    return line
