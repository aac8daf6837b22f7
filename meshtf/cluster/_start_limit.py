"""An end to the start of TensorFlow's server: for a process that dies in that second others wait in it for ever, and it
lets no other thread of Python run."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def killed_after(seconds: float, words: str) -> Iterator[None]:
    """Inside, this process is ended by SIGKILL when so long has passed; a second process sees to it, and says why."""
    # A script by its path, without the user's packages: nothing that slows it.
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as helper:
        try:
            yield
        finally:
            assert helper.stdin is not None
            helper.stdin.close()


def watch(process: int, seconds: float, words: str) -> None:
    """Returns when standard input ends, or when the time has passed and the process is ended."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        print(words, file=sys.stderr, flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
