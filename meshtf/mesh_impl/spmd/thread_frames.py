"""The functions that the threads of this process are in."""

from __future__ import annotations

import gc
import sys
from types import FrameType


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each Python thread, by the thread's identity."""
    # Python 3.11 lists frames under a lock that the end of a `threading.local` takes too, and a collection of garbage
    # can start in between: the process would stand still for ever.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_enabled:
            gc.enable()
