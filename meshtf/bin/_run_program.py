"""Running a program: what the user can mend is a message and a status, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import flags

from meshtf.bin._command_line import CommandLine, FlagError, HelpWanted
from meshtf.bin._exit_status import ExitStatus
from meshtf.errors import CollectiveError, LayoutWarning, MeshtfError, NonFiniteError, SaveError
from meshtf.train.configuration import ConfigurationError

_BAD_FILE = "a file cannot be read or written: {error}"


def run_program(
    command_line: CommandLine, prepare: Callable[[flags.FlagValues], Callable[[], int]], arguments: Sequence[str]
) -> int:
    """Runs a program; returns its exit status.

    Args:
      command_line: its flags.
      prepare: from their values, reads the configuration, and builds and checks everything; what it returns runs.
      arguments: of the command, its name first.
    """
    try:
        values = command_line.parse(arguments)
    except HelpWanted as wanted:
        print(wanted, end="")
        return ExitStatus.DONE
    except FlagError as error:
        command_line.complain(str(error))
        return ExitStatus.BAD_CONFIGURATION
    otherwise = ExitStatus.BAD_CONFIGURATION
    try:
        run = prepare(values)
        otherwise = ExitStatus.FAILED
        return run()
    except BrokenPipeError:  # what reads the output has read enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitStatus.FAILED
    except (OSError, tf.errors.OpError, MeshtfError, LayoutWarning) as error:
        is_file = isinstance(error, OSError | tf.errors.OpError)
        command_line.complain(_BAD_FILE.format(error=error) if is_file else str(error))
        return status_of(error, otherwise)
    except KeyboardInterrupt:
        command_line.complain("interrupted")
        return ExitStatus.INTERRUPTED


def status_of(error: BaseException, otherwise: ExitStatus) -> ExitStatus:
    """What an error is told by, as `--help` lists it."""
    kinds = {
        ConfigurationError: ExitStatus.BAD_CONFIGURATION,
        SaveError: ExitStatus.BAD_FILE,
        OSError: ExitStatus.BAD_FILE,
        tf.errors.OpError: ExitStatus.BAD_FILE,
        NonFiniteError: ExitStatus.NOT_FINITE,
        CollectiveError: ExitStatus.COLLECTIVE_FAILED,
    }
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), otherwise)
