"""The command line of meshtf-compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from meshtf_programs.command_lines.shared.command_line import (
    HELP_FLAGS,
    FlagError,
    arguments_without_flags,
    wrong_value,
)
from meshtf_programs.command_lines.shared.path_flags import define_path
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.standard_streams import print_text
from meshtf_programs.user_paths import user_path

PROGRAM = "meshtf-compare"

HELP = """\
{program} shows runs side by side: how they ended, in which options they differ, and their curves in one picture.
Runs may have different lengths and metrics, and may still be running. {program} only reads them.

Usage:
  {program} RUN RUN ... [--output=FILE]

A RUN is the folder that meshtf-train has written, as runs/lm_tiny.

Flags:
  --output
      {output}

Examples:
  {program} runs/lm_tiny runs/by_data
  {program} runs/* --output=all_runs.png
  {program} runs/a runs/b --output= | less

Exit status:
  0    done
  2    wrong usage; a folder holds no run
  4    a file cannot be read or written
  130  interrupted
"""
_OUTPUT = "The picture, a PNG; by default compare.png in the current folder. Empty: none is drawn."


def answer(arguments: Sequence[str]) -> int | None:
    """Prints the help, or the error in the arguments, and returns the exit status. Returns None if there is work."""
    if HELP_FLAGS & set(arguments[1:]):
        return print_text(help_text())
    try:
        parse(arguments)
    except FlagError as error:
        return complain(str(error), ExitStatus.BAD_CONFIGURATION)
    return None


def help_text() -> str:
    return HELP.format(program=PROGRAM, output=_OUTPUT)


def complain(message: str, status: int) -> int:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    return status


def parse(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Returns the folders of the runs, and the file of the picture.

    Raises:
      FlagError: for an unknown flag, with the nearest; or if the picture cannot be a PNG.
    """
    values = flags.FlagValues()
    define_path(values, "output", "compare.png", _OUTPUT)
    paths = arguments_without_flags(values, arguments, PROGRAM)[1:]
    if wrong := wrong_value(values, may_be_empty=("output",)):
        raise FlagError(f"{wrong}\nSee {PROGRAM} --help.")
    if not values.output:
        return paths, None
    output = user_path(values.output)
    if output.suffix.lower() != ".png" or not output.parent.is_dir():
        wrong = "does not end in .png" if output.parent.is_dir() else "is in a folder that is not there"
        raise FlagError(f"--output={values.output} {wrong}")
    return paths, output
