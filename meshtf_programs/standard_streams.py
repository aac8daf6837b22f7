"""Standard streams that are closed, as a shell's `>&-` or `<&-` closes them, and output that nobody can take, or whose
encoding lacks some characters."""

from __future__ import annotations

import io
import os
import sys

from meshtf_programs.exit_status import ExitStatus


def open_closed_streams() -> None:
    """Opens the null device in place of each standard stream that is closed. Call it before any file is opened.

    Otherwise the next files and pipes would have the numbers of these streams.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it stays open as long as the process runs


def escape_unknown_characters() -> None:
    """Makes standard output show a character that its encoding lacks as an escape, like standard error. Otherwise
    printing a path or another program's line could fail.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def print_text(text: str) -> int:
    """Prints the text, and returns the exit status of a program that has no more work."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        discard_output()
        return ExitStatus.FAILED
    except OSError as error:  # the disk is full
        discard_output()
        print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        return ExitStatus.BAD_FILE
    return ExitStatus.DONE


def discard_output() -> None:
    """Connects standard output to the null device. Call it when the reader has read enough, as `| head` does: Python
    would otherwise write the rest when the process ends, and fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
