"""A signal is seen at once, by a thread; here from within the process."""

from __future__ import annotations

import os
import pty
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from meshtf.train.runs.signals import SIGNALS, StopRequest, leave_dead_terminal, stop_request, watch

SOON = 500.0  # seconds; a busy machine may need them, and the signal ends the wait


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """Whoever started the tests, as nohup does, may have had signals ignored, and they would stay so."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def wait_for(stop: StopRequest) -> None:
    end = time.monotonic() + SOON
    while not stop and time.monotonic() < end:
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_asks_and_says_so(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    handlers = {n: signal.getsignal(n) for n in SIGNALS}
    with stop_request() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        wait_for(stop)
        assert stop.signal == number
    assert f"{number.name}: this step is finished, a checkpoint is written" in capsys.readouterr().err
    assert {n: signal.getsignal(n) for n in handlers} == handlers
    assert not [t for t in threading.enumerate() if t.name == "meshtf_signals"]


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGINT])
def test_a_reader_that_is_gone_ends_the_run_as_a_terminal_does(
    first: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C also ends `tee`, and the rest of the output must not fail what is saved then."""
    reading, writing = os.pipe()
    with open(writing, "w") as output:
        monkeypatch.setattr("sys.stdout", output)
        os.close(reading)
        with stop_request() as stop:
            if first != signal.SIGHUP:
                os.kill(os.getpid(), first)
                wait_for(stop)
            print("step 7", flush=True)
            wait_for(stop)
            print("step 8", flush=True)
        assert stop.signal == first


@pytest.mark.parametrize(
    ("numbers", "noted", "statuses"),
    [
        ([], None, []),
        ([signal.SIGCHLD, signal.SIGUSR1], None, []),
        ([signal.SIGTERM], signal.SIGTERM, []),
        ([signal.SIGTERM, signal.SIGCHLD, signal.SIGINT], signal.SIGTERM, [130]),
        ([signal.SIGINT, signal.SIGINT], signal.SIGINT, [130]),
        ([signal.SIGINT, signal.SIGTERM], signal.SIGINT, [143]),
        ([signal.SIGHUP, signal.SIGHUP, signal.SIGHUP], signal.SIGHUP, []),
        ([signal.SIGHUP, signal.SIGTERM], signal.SIGHUP, [143]),
        ([signal.SIGTERM, signal.SIGHUP], signal.SIGTERM, []),
    ],
)
def test_a_second_signal_ends_the_process_with_its_status(
    numbers: list[signal.Signals], noted: signal.Signals | None, statuses: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, bytes([*numbers, 0]))
    ends: list[int] = []
    request = StopRequest()
    watch(reading, request, end=ends.append)
    assert ends == statuses
    if not ends:  # which really ends it
        assert request.signal == noted
    text = capsys.readouterr().err
    assert ("again: ended at once" in text) == bool(statuses)
    assert (f"{noted.name}: this step is finished" in text) if noted else not text
    os.close(reading)
    os.close(writing)


def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup starts a program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_request() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            wait_for(stop)
            assert stop.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_is_gone_fails_nothing() -> None:
    """Its other side is closed, which is what a window does."""
    terminal, process = pty.openpty()
    os.close(terminal)
    with pytest.raises(OSError, match="Input/output error"):
        os.write(process, b"step 7")
    leave_dead_terminal([process])
    assert os.write(process, b"step 7") == 6
    os.close(process)


def test_a_terminal_that_is_there_is_left_alone() -> None:
    terminal, process = pty.openpty()
    leave_dead_terminal([process])
    os.write(process, b"step 7")
    assert os.read(terminal, 6) == b"step 7"
    os.close(terminal)
    os.close(process)
