"""Hides the output of TensorFlow's native code while it starts, and shows it if the start fails."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Iterator

_STANDARD_ERROR = 2
_FORGET, _SHOW = b"\0forget what came before\n", b"\0show what came before\n"
_SHOWN = b"!"


@dataclasses.dataclass(frozen=True)
class Keeper:
    """A process that keeps the output of another process, and shows it when that process requests it or dies.

    A process cannot show its own output if native code ends it. TensorFlow does this on a CPU that it was not built
    for.

    Attributes:
      process: its id.
      kept: a pipe. The keeper keeps all that is written here.
      answers: a pipe. The keeper writes here when all has been shown.
    """

    process: int
    kept: int
    answers: int

    @classmethod
    def start(cls) -> Keeper:
        """Forks the keeper. Call it before there are threads."""
        kept, write_kept = os.pipe()
        answers, write_answers = os.pipe()
        process = os.fork()
        if not process:
            for descriptor in (0, 1, write_kept, answers):  # else a reader of the output would wait for the keeper
                os.close(descriptor)
            _keep(kept, write_answers)
        os.close(kept)
        os.close(write_answers)
        return cls(process, write_kept, answers)

    def forget(self) -> None:
        os.write(self.kept, _FORGET)

    def show(self) -> None:
        """Shows the kept output, and returns when all has been shown."""
        os.write(self.kept, _SHOW)
        os.read(self.answers, 1)

    def stop(self) -> None:
        os.close(self.kept)
        os.close(self.answers)
        os.waitpid(self.process, 0)


def _keep(kept: int, answers: int) -> None:
    """Does the work of the keeper, until no process can write to the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both processes, and the other one reports it
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    text = b""
    while piece := os.read(kept, 1 << 16):
        text = (text + piece).rpartition(_FORGET)[2]
        while _SHOW in text:
            shown, _, text = text.partition(_SHOW)
            _write_all(shown)
            os.write(answers, _SHOWN)
    _write_all(text)
    os._exit(0)


def _write_all(text: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads
        while text:
            text = text[os.write(_STANDARD_ERROR, text) :]


@dataclasses.dataclass
class NativeOutput:
    """The keeper of this process, if there is one. `meshtf_programs.start` makes it."""

    keeper: Keeper | None = None

    @contextlib.contextmanager
    def kept_back(self) -> Iterator[None]:
        """Hides what is written to standard error, unless the body raises or the process dies."""
        if self.keeper is None:
            yield
            return
        sys.stderr.flush()
        before = os.dup(_STANDARD_ERROR)
        os.dup2(self.keeper.kept, _STANDARD_ERROR)
        try:
            yield
        except BaseException:
            self._end(before)
            self.keeper.show()
            raise
        self._end(before)
        self.keeper.forget()

    def stop(self) -> None:
        """Ends the keeper, so that nothing is hidden any more."""
        if self.keeper is not None:
            self.keeper.stop()
            self.keeper = None

    def _end(self, before: int) -> None:
        sys.stderr.flush()
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


NATIVE_OUTPUT = NativeOutput()
"""The object for this process. Without `meshtf_programs.start`, such as in a notebook, nothing is hidden."""
