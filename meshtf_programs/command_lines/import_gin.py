"""The command line of meshtf-import-gin."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-import-gin"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(with_source(arguments))


def with_source(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments as flags. The first one may be the source itself."""
    program, *rest = arguments
    is_source = bool(rest) and not rest[0].startswith("-")
    return [program, *([f"--source={rest[0]}", *rest[1:]] if is_source else rest)]


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="reads a gin file of Mesh TensorFlow or of T5, as text, and writes one of meshtf: an encoder and a\n"
        "decoder, their optimizer, batches and layout. It lists the lines without counterpart, and their meaning.",
        usage=f"{PROGRAM} SOURCE [--output=FILE] [--strict]",
        examples=[
            f"{PROGRAM} downloads/t5/operative_config.gin --output=t5.gin",
            f"{PROGRAM} operative_config.gin --strict",
        ],
        required=["source"],
    )
    define_path(line.flags, "source", None, "The file to read, as operative_config.gin; also without a flag.")
    define_path(line.flags, "output", None, "The file to write, which must not exist; by default it is printed.")
    flags.DEFINE_bool(
        "strict",
        False,
        "Whether a line without counterpart is an error. Nothing is written then.",
        flag_values=line.flags,
    )
    return line
