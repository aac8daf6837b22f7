"""meshtf-compare: shows several runs side by side, in a table and a picture."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from meshtf.bin.shared.cluster import is_left_to_process_0
from meshtf.errors import MeshtfError
from meshtf.train.monitoring.comparison import comparison_tables, draw_comparison, read_runs
from meshtf_programs.command_lines.compare import PROGRAM, answer, complain, help_text, parse
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.standard_streams import discard_output

__all__ = ["PROGRAM", "help_text", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Compares the runs in the arguments, which begin with the program's name. Returns the exit status."""
    try:
        if is_left_to_process_0():
            return ExitStatus.DONE
        if (status := answer(arguments)) is not None:
            return status
        return compare(*parse(arguments))
    except BrokenPipeError:
        discard_output()
        return ExitStatus.FAILED
    except MeshtfError as error:
        return complain(str(error), ExitStatus.BAD_CONFIGURATION)
    except OSError as error:
        return complain(f"a file cannot be read or written: {error}", ExitStatus.BAD_FILE)
    except KeyboardInterrupt:
        return complain("interrupted", ExitStatus.INTERRUPTED)


def compare(paths: Sequence[str], output: Path | None) -> int:
    """Prints the table, the problems of reading, and the path of the picture."""
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
