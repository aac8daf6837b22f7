"""The command line of meshtf-tokenize."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import define_gin_file, define_gin_param
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-tokenize"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="makes the tokens of a configuration's text, once, in the folder TextTask.tokens.\n"
        "Training reads them there, and not the text. The same command again continues where it was interrupted.",
        usage=f"{PROGRAM} --gin_file=NAME [--gin_param=BINDING ...] [--output=FOLDER] [--processes=N] [--verify]",
        examples=[
            f"{PROGRAM} --gin_file=books.gin --output=data/books.tokens --processes=16",
            f"{PROGRAM} --gin_file=books.gin --verify",
        ],
        required=["gin_file"],
    )
    define_gin_file(line.flags)
    define_gin_param(line.flags)
    define_path(line.flags, "output", None, "The folder to make; overrides TextTask.tokens.")
    flags.DEFINE_integer(
        "processes",
        None,
        "How many processes encode side by side; by default one for each processor that this one may use. The tokens "
        "do not depend on it.",
        lower_bound=1,
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "verify",
        False,
        "Whether to read the tokens of the folder from beginning to end, and to compare them with the checksums that "
        "were written with them.",
        flag_values=line.flags,
    )
    return line
