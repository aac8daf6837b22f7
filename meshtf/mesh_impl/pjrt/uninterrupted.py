"""Delays Ctrl-C during statements that must not be separated."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A context that raises the KeyboardInterrupt of Ctrl-C only when it ends. Signal handlers of the user stay."""
    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_raised or threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: signals.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if signals:
            raise KeyboardInterrupt
