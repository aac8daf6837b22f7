"""Programs in processes of their own, as a user starts them, without the seconds that importing TensorFlow takes.

One process imports meshtf and its programs, starts nothing, and forks for each program. Its string hashes are other
than the tests'.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a program ended: its exit status, negative for a signal, and what it wrote."""

    status: int
    stdout: str
    stderr: str


class FreshProcess:
    """A program that runs beside the tests, started as `python *arguments`: a file, or `-c`, or `-m`."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path | None = None,
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._files = Path(tempfile.mkdtemp(prefix="fresh_process"))
        (self._files / "stdin").write_text(stdin)
        (self._files / "stdout").touch()
        (self._files / "stderr").touch()
        given = (list(arguments), str(folder or Path.cwd()), str(self._files), dict(environment or {}))
        self._process: ForkServerProcess = forking_context().Process(target=_run, args=given)
        self._process.start()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: signal.Signals) -> None:
        """Unless it has ended."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """By SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """By SIGTERM."""
        self._process.terminate()

    def finish(self, timeout_seconds: float = 500.0) -> Finished:
        """Waits for the end; raises TimeoutError where it does not come, with what was written."""
        self._process.join(timeout_seconds)
        is_late = self._process.is_alive()
        if is_late:
            self._process.kill()
            self._process.join()
        status = self._process.exitcode
        assert status is not None
        finished = Finished(status, *((self._files / name).read_text() for name in ("stdout", "stderr")))
        shutil.rmtree(self._files)
        self._process.close()
        if is_late:
            raise TimeoutError(f"not ended after {timeout_seconds} s: {finished}")
        return finished


def run_fresh(
    arguments: Sequence[str],
    folder: Path | None = None,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 500.0,
) -> Finished:
    """`python *arguments` from its start to its end."""
    return FreshProcess(arguments, folder, stdin, environment).finish(timeout_seconds)


@functools.cache
def forking_context() -> multiprocessing.context.ForkServerContext:
    """Of processes that have imported meshtf's rooms and started nothing. Their parent runs as long as the tests do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fork_server"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "17")
        multiprocessing.forkserver.ensure_running()
    return context


def _run(arguments: list[str], folder: str, files: str, environment: Mapping[str, str]) -> None:
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY), (2, "stderr", os.O_WRONLY)):
        descriptor = os.open(f"{files}/{name}", flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.update(environment)
    os.chdir(folder)
    try:
        _run_program(arguments)
    finally:
        atexit._run_exitfuncs()  # which a forked process leaves out, as none does that a user starts


def _run_program(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules.pop(sys.argv[0], None)  # it is run anew, and runpy warns of a module that is there
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        runpy.run_path(sys.argv[0], run_name="__main__")
