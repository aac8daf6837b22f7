"""What native code writes while a program starts: kept back, and shown when the start fails, in whatever way."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

KEEPS = """
import os
import signal
import sys

from meshtf_programs.native_output import NATIVE_OUTPUT, Keeper

NATIVE_OUTPUT.keeper = Keeper.start()


def write(text):
    os.write(2, text.encode())  # as native code does, which knows nothing of sys.stderr
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """A program that has a keeper. It imports no TensorFlow, so an interpreter of its own takes no time."""
    text = KEEPS + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=500, check=False)


def test_a_start_that_succeeds_shows_nothing_of_it() -> None:
    done = run(
        """
        for _ in range(2):
            write("before ")
            with NATIVE_OUTPUT.kept_back():
                write("I0000 noise\\n" * 9999)  # more than a pipe holds
                print("W0000 of Python", file=sys.stderr)
            print("after", file=sys.stderr)
        NATIVE_OUTPUT.stop()
        with NATIVE_OUTPUT.kept_back():
            write("stopped")
        """
    )
    assert (done.returncode, done.stderr) == (0, "before after\nbefore after\nstopped")


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("raise ImportError('no libtensorflow')", 1),
        ("os.abort()", -6),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11),
        ("os._exit(7)", 7),
    ],
)
def test_a_start_that_fails_shows_all_of_it(end: str, status: int) -> None:
    done = run(
        f"""
        with NATIVE_OUTPUT.kept_back():
            write("E0000 no such instruction\\n")
            {end}
        """
    )
    assert done.returncode == status
    assert done.stderr.startswith("E0000 no such instruction\n")


def test_only_the_start_that_fails_is_shown() -> None:
    done = run(
        """
        with NATIVE_OUTPUT.kept_back():
            write("first")
        try:
            with NATIVE_OUTPUT.kept_back():
                write("second ")
                raise ValueError
        except ValueError:
            write("third")
        """
    )
    assert done.stderr == "second third"
