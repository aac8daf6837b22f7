"""The command line of meshtf-dialog."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_checkpoint_flags,
    define_gin_param,
    define_mesh_flags,
)
from meshtf_programs.command_lines.shared.path_flags import define_path, define_paths

PROGRAM = "meshtf-dialog"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="talks with a model that rates its own responses and asks tools, as LaMDA does.\n"
        "Answers go to standard output, and all else to standard error.",
        usage=f"{PROGRAM} --model_dir=FOLDER [--prompt=TEXT ...] [--passages=FILE ...] | --questions=N",
        examples=[
            f"{PROGRAM} --model_dir=runs/lamda_tiny_finetuned --prompt='what is 17 plus 25 ?'",
            f"{PROGRAM} --model_dir=runs/lamda_tiny_finetuned --passages=facts.txt --format=jsonl < questions.txt",
            f"{PROGRAM} --model_dir=runs/lamda_tiny_finetuned --questions=200",
        ],
        required=["model_dir"],
    )
    define_checkpoint_flags(line.flags)
    _define_dialog_flags(line.flags)
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line


def _define_dialog_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_multi_string(
        "prompt",
        [],
        "A user's turn, each the first of a dialog of its own. May be given several times. Without it each line of "
        "standard input is a user's turn.",
        flag_values=values,
    )
    define_paths(
        values,
        "passages",
        "A file in which a tool finds the lines that fit a query best. May be given several times.",
    )
    flags.DEFINE_bool("tools", True, "Whether the model may ask tools.", flag_values=values)
    flags.DEFINE_integer(
        "questions",
        None,
        "How many generated questions to ask, whose right answers are known. The shares of good answers are printed "
        "as they are drawn, ranked, and with tools.",
        lower_bound=1,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "batch_size", 16, "How many dialogs run at a time.", lower_bound=1, upper_bound=4096, flag_values=values
    )
    define_path(values, "output", None, "The file to write results to; by default standard output.")
    flags.DEFINE_enum(
        "format",
        "text",
        ["text", "jsonl"],
        "The format of the results: text, or one JSON object per line.",
        flag_values=values,
    )
