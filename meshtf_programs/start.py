"""The console scripts. Each imports a program of `meshtf.bin`, which takes seconds, and runs it.

`command_lines/` shows help, and errors in flags, before this import.

The output of TensorFlow's import is hidden, and Ctrl-C ends the import without a traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

from meshtf_programs.launching.launched import MESHTF_LAUNCH
from meshtf_programs.native_output import NATIVE_OUTPUT, Keeper
from meshtf_programs.standard_streams import escape_unknown_characters, open_closed_streams

TENSORFLOW_LOGS = "--tensorflow_logs"
_ERRORS_ALONE = "2"


def train() -> None:
    start("train")


def evaluate() -> None:
    start("eval")


def decode() -> None:
    start("decode")


def dialog() -> None:
    start("dialog")


def export() -> None:
    start("export")


def quantize() -> None:
    start("quantize")


def plan() -> None:
    start("plan")


def compile_ahead() -> None:
    start("compile")


def probe() -> None:
    start("probe")


def vocab() -> None:
    start("vocab")


def tokenize() -> None:
    start("tokenize")


def benchmark() -> None:
    start("benchmark")


def compare() -> None:
    start("compare")


def import_gin() -> None:
    start("import_gin")


def checkpoint() -> None:
    start("checkpoint")


def serve() -> None:
    start("serve")


def sweep() -> None:
    start("sweep")


def launch() -> None:
    """Starts the processes of another program. It needs neither TensorFlow nor flags of its own from absl."""
    open_closed_streams()
    escape_unknown_characters()
    with _ends_at_signals("meshtf-launch"):
        launcher = importlib.import_module("meshtf_programs.launching.launch")
    launcher.run()


def start(program: str) -> None:
    """Imports and runs a program of `meshtf.bin`, if there is work for it."""
    open_closed_streams()
    escape_unknown_characters()
    name = f"meshtf-{program.replace('_', '-')}"
    with _ends_at_signals(name):
        status = _early_answer(program, sys.argv)
    if status is not None:
        sys.exit(status)
    if TENSORFLOW_LOGS not in sys.argv[1:]:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _ERRORS_ALONE)  # TensorFlow's native code reads this
        NATIVE_OUTPUT.keeper = Keeper.start()
    with _ends_at_signals(name), NATIVE_OUTPUT.kept_back():
        module = importlib.import_module(f"meshtf.bin.{program}")
    module.run()


def _early_answer(program: str, arguments: Sequence[str]) -> int | None:
    """Returns the exit status, if the command line alone decides it."""
    if MESHTF_LAUNCH in os.environ:  # the program may be left to another process
        return None
    return importlib.import_module(f"meshtf_programs.command_lines.{program}").answer(arguments)


@contextlib.contextmanager
def _ends_at_signals(name: str) -> Iterator[None]:
    """Makes SIGINT and SIGTERM end the process at once. Nothing has begun, and an import could end in any error.

    A signal that is ignored, as SIGINT is in the background of a script, stays ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        if NATIVE_OUTPUT.keeper is not None:
            NATIVE_OUTPUT.keeper.forget()
        if number == signal.SIGINT:
            os.write(standard_error, f"{name}: error: interrupted\n".encode())
        os._exit(128 + number)

    standard_error = os.dup(2)
    wanted = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(standard_error)
