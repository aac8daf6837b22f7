"""Waits for files that another process has made on a shared disk."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

SECONDS_TO_SEE = 5.0
"""The seconds to wait until a network file system shows a file that another machine made."""


def appears(path: Path) -> bool:
    """Tells whether an existing file or folder becomes visible to this machine within some seconds.

    The client of a network file system may cache for a minute that a name was missing. Listing the folder makes it look
    again.
    """
    end = time.monotonic() + SECONDS_TO_SEE
    while not path.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            os.listdir(path.parent)
    return True
