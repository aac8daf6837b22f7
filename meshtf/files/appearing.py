"""Files that another process has made, on a disk that both see."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

SECONDS_TO_SEE = 5.0
"""Seconds until a network file system shows a file that another machine made."""


def appears(path: Path) -> bool:
    """Tells whether a file or folder, which was made before, is seen here within some seconds.

    A network file system's client may remember for a minute that a name was missing. But it looks again when the folder
    is listed.
    """
    end = time.monotonic() + SECONDS_TO_SEE
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.listdir(path.parent)
    return True
