"""Starts one process of a job, on this machine or over ssh."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Protocol

from meshtf_programs.addresses import Address
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.launching.ssh import UNREACHABLE, Host, why_unreachable

_SECONDS_TO_HANG_UP = 5.0


class StartedProcess(Protocol):
    """The interface that a job needs of a process.

    Attributes:
      index: the index of the process in its job.
      popen: the process itself, or the ssh that runs it. It has a session of its own, and pipes for both outputs.
    """

    index: int
    popen: subprocess.Popen[bytes]

    def send(self, number: int) -> None:
        """Sends a signal to it and to its children, unless it has ended."""
        ...

    def kill(self) -> None:
        """Ends it and its children with SIGKILL."""
        ...

    def wait(self) -> None:
        """Waits for the end, after `kill`."""
        ...

    def explained(self, last_line: str) -> str:
        """Returns a sentence on how the process ended, or mostly an empty text.

        `last_line`: the last line that it wrote to standard error.
        """
        ...


class Starter(Protocol):
    """Starts one of the processes."""

    def address(self, port: int) -> str:
        """Returns the address, with this port, at which other processes reach it."""
        ...

    def start(self, command: Sequence[str], launched: Launched) -> StartedProcess:
        """Starts the command, and passes it the facts about the job."""
        ...


class Here:
    """Starts a process on this machine."""

    def address(self, port: int) -> str:
        return str(Address("127.0.0.1", port))

    def start(self, command: Sequence[str], launched: Launched) -> LocalProcess:
        return LocalProcess(command, launched)


class LocalProcess:
    """A process in a session of its own. Ctrl-C only reaches the launcher, which passes it on once."""

    def __init__(self, command: Sequence[str], launched: Launched) -> None:
        self.index = launched.process_index
        environment = {**os.environ, MESHTF_LAUNCH: launched.to_text(), "PYTHONUNBUFFERED": "1"}
        self.popen = _piped(command, subprocess.DEVNULL, environment)

    def send(self, number: int) -> None:
        _send_to_group(self.popen, number)

    def kill(self) -> None:
        _send_to_group(self.popen, signal.SIGKILL)

    def wait(self) -> None:
        self.popen.wait()

    def explained(self, last_line: str) -> str:
        return ""


class There:
    """Starts a process on another host."""

    def __init__(self, ssh: str, host: Host) -> None:
        """Sets the host. `ssh`: the path of ssh's program."""
        self._ssh, self._host = ssh, host

    def address(self, port: int) -> str:
        return self._host.address(port)

    def start(self, command: Sequence[str], launched: Launched) -> RemoteProcess:
        return RemoteProcess(self._ssh, self._host, command, launched)


class RemoteProcess:
    """A process on another host, run by ssh. Its variable and then its signals travel over standard input. When
    standard input ends, all its processes there are killed.

    So the token is in no command line, and a launcher that dies leaves no process behind.
    """

    def __init__(self, ssh: str, host: Host, command: Sequence[str], launched: Launched) -> None:
        self.index, self._host = launched.process_index, host
        self.popen = _piped([ssh, *host.arguments(command)], subprocess.PIPE, dict(os.environ))
        self._write(launched.to_text())

    def send(self, number: int) -> None:
        if self.popen.poll() is None:
            self._write(signal.Signals(number).name.removeprefix("SIG"))

    def kill(self) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()

    def wait(self) -> None:
        try:
            self.popen.wait(_SECONDS_TO_HANG_UP)
        except subprocess.TimeoutExpired:
            _send_to_group(self.popen, signal.SIGKILL)
            self.popen.wait()

    def explained(self, last_line: str) -> str:
        is_ours = self.popen.returncode == UNREACHABLE
        return f"process {self.index}: {why_unreachable(self._host, last_line)}" if is_ours else ""

    def _write(self, line: str) -> None:
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):  # ssh has ended, and its status will say why
            self.popen.stdin.write(f"{line}\n".encode())
            self.popen.stdin.flush()


def _piped(command: Sequence[str], stdin: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, env=environment, start_new_session=True)


def _send_to_group(popen: subprocess.Popen[bytes], number: int) -> None:
    if popen.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, number)
