"""A time limit for the start of TensorFlow's server.

If a process dies during the start, the others wait for it there for ever, and no other Python thread can run.
"""

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
    """Kills this process with SIGKILL if the body takes longer than `seconds`. A second process does this, and
    prints `words`.
    """
    # Python runs this file by its path, without the user's packages, so that it starts at once.
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds), words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as helper:
        try:
            yield
        finally:
            assert helper.stdin is not None
            helper.stdin.close()


def watch(process: int, seconds: float, words: str) -> None:
    """Returns when standard input ends, or when the time has passed and the process is killed."""
    if not select.select([sys.stdin], [], [], seconds)[0]:
        print(words, file=sys.stderr, flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
