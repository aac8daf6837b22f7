"""meshtf-compare: several runs side by side, in a table and a picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags
from rich.console import Console

from meshtf.bin._exit_status import ExitStatus
from meshtf.errors import MeshtfError
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.comparison import comparison_tables, draw_comparison, read_runs

PROGRAM = "meshtf-compare"

HELP = """\
{program} shows runs side by side: how they ended, in which options they differ, and their curves in one picture.
Runs may be of different lengths, with different metrics, and still running. Nothing of them is changed or executed.

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
  2    wrong usage; what was given is no run
  4    a file cannot be read or written
  130  interrupted
"""
_OUTPUT = "The picture, a PNG; by default compare.png in the current folder. Empty: none is drawn."
_HELP_FLAGS = {"-h", "-help", "--help", "--helpshort", "--helpfull"}


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Compares the runs that the arguments name, after the program's name; returns the exit status."""
    if _HELP_FLAGS & set(arguments[1:]):
        print(help_text(), end="")
        return ExitStatus.DONE
    try:
        paths, output = parse(arguments)
        return compare(paths, output)
    except BrokenPipeError:  # what reads the output has read enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.FAILED
    except flags.Error as error:
        return complain(f"{error}\nSee {PROGRAM} --help.", ExitStatus.BAD_CONFIGURATION)
    except MeshtfError as error:
        return complain(str(error), ExitStatus.BAD_CONFIGURATION)
    except OSError as error:
        return complain(f"a file cannot be read or written: {error}", ExitStatus.BAD_FILE)
    except KeyboardInterrupt:
        return complain("interrupted", ExitStatus.INTERRUPTED)


def help_text() -> str:
    return HELP.format(program=PROGRAM, output=_OUTPUT)


def complain(message: str, status: int) -> int:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    return status


def parse(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """The folders of the runs, and the file of the picture.

    Raises:
      flags.Error: an unknown flag, with the nearest.
      ConfigurationError: the picture could not be a PNG.
    """
    values = flags.FlagValues()
    flags.DEFINE_string("output", "compare.png", _OUTPUT, flag_values=values)
    paths = values(arguments)[1:]
    if not values.output:
        return paths, None
    output = Path(values.output).expanduser()
    if output.suffix.lower() != ".png" or not output.parent.is_dir():
        wrong = "ends otherwise than in .png" if output.parent.is_dir() else "is in a folder that is not there"
        raise ConfigurationError(f"--output={values.output} {wrong}")
    return paths, output


def compare(paths: Sequence[str], output: Path | None) -> int:
    """Prints the table, what could not be read, and where the picture is."""
    runs = read_runs(paths)
    console = Console()
    for table in comparison_tables(runs, console.width):
        console.print(table)
    for problem in (problem for run in runs for problem in run.problems):
        print(problem)
    if output is not None:
        problem = draw_comparison(runs, output)
        print(f"curves:        {output}" if problem is None else problem)
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
