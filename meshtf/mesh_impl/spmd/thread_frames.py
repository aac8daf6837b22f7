"""The functions that the threads of this process are executing."""

from __future__ import annotations

import gc
import sys
from types import FrameType


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each Python thread, by the thread's identity."""
    # Python 3.11 lists frames under a lock that the destructor of a `threading.local` also takes. A garbage collection
    # in between would deadlock the process.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
