"""Requests to stop by signals. They are noted at once, while Python's own handlers would wait for the end of a step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, TextIO, cast

from meshtf_programs.standard_streams import discard_output

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ASKED = """\
{name}: this step is finished, a checkpoint is written, and the program ends; a second signal ends it at once."""
ENDED = """\
{name} again: ended at once; nothing since the last checkpoint was saved."""

_END_OF_WATCH = b"\0"  # no signal has this number


class StopRequest:
    """A request to stop the program: whether a signal has asked for it, and which."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Notes SIGTERM, Ctrl-C and the end of the terminal in the body, and prints a line.

    A second signal ends the process with status 128 + signal. A signal that is ignored, as under `nohup`, stays
    ignored.

    If nobody reads standard output any more, as when Ctrl-C has also ended `tee`, that counts as the end of the
    terminal. Further output is discarded.

    Use it in the main thread. A thread reads the numbers of signals from a pipe. Python's C handler writes them there
    the moment they come, whatever the main thread is doing.
    """
    request = StopRequest()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wanted = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    handlers = {number: signal.signal(number, _wait_for_the_thread) for number in wanted}
    descriptor_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, args=(reading, request), name="meshtf_signals", daemon=True)
    thread.start()
    try:
        with contextlib.redirect_stdout(cast(TextIO, _Output(sys.stdout))):
            yield request
    finally:
        signal.set_wakeup_fd(descriptor_before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.write(writing, _END_OF_WATCH)
        thread.join()
        os.close(reading)
        os.close(writing)


class _Output:
    """Standard output whose reader may go away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with _end_without_reader():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with _end_without_reader():
            self._stream.flush()


@contextlib.contextmanager
def _end_without_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        discard_output()
        signal.raise_signal(signal.SIGHUP)


def _wait_for_the_thread(number: int, frame: FrameType | None) -> None:
    """Replaces the default handler, which would end the process."""


def watch(reading: int, request: StopRequest, end: Callable[[int], object] = os._exit) -> None:
    """Reads numbers of signals from a pipe until a 0. The first one in SIGNALS is noted, and the second ends the
    process.

    A terminal that goes away sends more than one SIGHUP: from the shell, and from the kernel.
    """
    while (read := os.read(reading, 1)) != _END_OF_WATCH:
        number = signal.Signals(read[0])
        if number not in SIGNALS or (request and number == signal.SIGHUP):
            continue
        if number == signal.SIGHUP:
            leave_dead_terminal()
        if request:
            _say(ENDED, number)
            end(128 + number)
        request.signal = number
        _say(ASKED, number)


def leave_dead_terminal(descriptors: Sequence[int] = (1, 2)) -> None:
    """Discards output to a terminal that is gone, so that a checkpoint never fails because of a line of
    text.
    """
    for descriptor in descriptors:
        try:
            os.write(descriptor, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def _say(text: str, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        print(text.format(name=number.name), file=sys.stderr, flush=True)
