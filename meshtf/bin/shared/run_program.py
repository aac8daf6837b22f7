"""Runs a program. An error that the user can fix gives a message and a status, and never a traceback."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf
from absl import flags

from meshtf.bin.shared.cluster import is_left_to_process_0
from meshtf.errors import (
    CollectiveError,
    DeviceError,
    LayoutError,
    LayoutWarning,
    MeshtfError,
    NonFiniteError,
    SaveError,
)
from meshtf.train.configuration import ConfigurationError
from meshtf.train.gin_files.bindings import present_bindings, where_written
from meshtf.train.gin_files.errors import explained, user_frames, without_calls
from meshtf.train.runs.agreement import Agreement
from meshtf_programs.command_lines.shared.command_line import CommandLine, FlagError, HelpWanted
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.native_output import NATIVE_OUTPUT
from meshtf_programs.standard_streams import discard_output, print_text
from meshtf_programs.user_paths import UserPathError

_BAD_FILE = "a file cannot be read or written: {error}"

_IN_USERS_CODE = """\
{kind}: {error}
  raised in code of yours:
{frames}"""

_FAULT = """\
{kind}: {error}
No file, flag or code of yours is known to be the cause: this is a fault of meshtf, or of what it builds on. The lines
above say where it was raised."""

_OWN_LINE = re.compile(rf"\n  at (?:{re.escape(str(Path(__file__).parents[1]))}/.*|.*\bmeshtf-[a-z-]+:\d+ in <module>)")
"""The line of a message that says where a program called the library, or where its script called the program. Neither
call is in the user's code."""

_ABOUT_LAYOUTS = (LayoutError, LayoutWarning, DeviceError)
_LAYOUT_PARAMETERS = ("mesh_shape", "layout", "parameter_layout", "activation_layout", "axis_parts")

_OF_FILES = (
    OSError,
    tf.errors.NotFoundError,
    tf.errors.AlreadyExistsError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.FailedPreconditionError,
    tf.errors.DataLossError,
    tf.errors.OutOfRangeError,
    tf.errors.UnimplementedError,
    tf.errors.UnknownError,
)
"""The errors of reading and writing files."""


def run_program(
    command_line: CommandLine,
    prepare: Callable[[flags.FlagValues], Callable[[], int]],
    arguments: Sequence[str],
    *,
    has_mesh: bool = True,
) -> int:
    """Runs a program. Returns its exit status.

    Args:
      command_line: its flags.
      prepare: reads the configuration from the flags' values, and builds and checks everything. It returns a function
        that does the work.
      arguments: the arguments of the command, with its name first.
      has_mesh: whether several processes work together on a mesh. Otherwise meshtf-launch's first process works alone.
    """
    otherwise = ExitStatus.BAD_CONFIGURATION
    try:
        if not has_mesh and is_left_to_process_0():
            return ExitStatus.DONE
        run = prepare(command_line.parse(arguments))
        NATIVE_OUTPUT.stop()
        otherwise = ExitStatus.FAILED
        return run()
    except HelpWanted as wanted:
        return print_text(str(wanted))
    except FlagError as error:
        command_line.complain(str(error))
        return ExitStatus.BAD_CONFIGURATION
    except BrokenPipeError:
        discard_output()
        return ExitStatus.FAILED
    except KeyboardInterrupt as interrupt:
        command_line.complain("interrupted")
        Agreement.of_this_process().tell_failure(interrupt, "interrupted")
        return ExitStatus.INTERRUPTED
    except Exception as error:
        message = error_message(error)
        command_line.complain(message)
        Agreement.of_this_process().tell_failure(error, message.partition("\n")[0])
        return status_of(error, otherwise)


def status_of(error: BaseException, otherwise: ExitStatus) -> ExitStatus:
    """Returns the exit status of an error, as `--help` lists it."""
    kinds = {
        (ConfigurationError, UserPathError): ExitStatus.BAD_CONFIGURATION,
        SaveError: ExitStatus.BAD_FILE,
        _OF_FILES: ExitStatus.BAD_FILE,
        NonFiniteError: ExitStatus.NOT_FINITE,
        CollectiveError: ExitStatus.COLLECTIVE_FAILED,
        (MeshtfError, LayoutWarning): otherwise,
    }
    found = next((status for kind, status in kinds.items() if isinstance(error, kind)), None)
    if found is None:
        return otherwise if user_frames(error) else ExitStatus.FAILED
    return found


def error_message(error: Exception, written: Callable[[str, Sequence[str]], str] | None = None) -> str:
    """Returns the message of an error. It prints a traceback first only if the message can name nothing of the user's.

    `written`: returns lines that say where the bindings in a message, and those of further names, were written. They
    replace the lines on gin files and flags.
    """
    if isinstance(error, MeshtfError | LayoutWarning):
        names = _bindings_of_layouts() if isinstance(error, _ABOUT_LAYOUTS) else []
        told, _ = without_calls(str(error))
        text = _OWN_LINE.sub("", told)
        if "  is from " in text:
            return text
        return text + (where_written(text, *names) if written is None else written(text, names))
    if isinstance(error, UserPathError):
        return explained(error)
    if isinstance(error, _OF_FILES):
        return _BAD_FILE.format(error=error)
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {error}"
    kind, frames = type(error).__name__, user_frames(error)
    if frames:
        return _IN_USERS_CODE.format(kind=kind, error=error, frames="".join(traceback.format_list(frames)).rstrip())
    traceback.print_exception(error)
    return _FAULT.format(kind=kind, error=error)


def _bindings_of_layouts() -> list[str]:
    """Returns the names of the bindings that lay out the program. An operative configuration also has unset ones."""
    names = [f"Training.{parameter}" for parameter in _LAYOUT_PARAMETERS]
    return [b.name for b in present_bindings() if b.name in names and b.value not in (None, ())]
