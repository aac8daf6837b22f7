"""Aborts a step in which a collective waits for ever.

One thread reads the counters of each device periodically. A counter is odd while its core is inside a collective. For
example, let the counters of two cores be 7 and 8 at one reading, and still 7 and 8 after the timeout. The first core
has been inside its fourth collective all that time, and the second is in none. So the step is aborted. The error names
the waiting core and the absent core.

TensorFlow's own `timeout_seconds` is not used. Each collective with a timeout keeps two threads asleep until the
timeout is over, even if it completed long before. With 300 seconds, eight cores and a hundred collectives per second,
these are more threads than a machine allows, and the process aborts. They also double the time of a small collective.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

import tensorflow as tf

from meshtf.mesh_impl.spmd._running_time import RunningTime
from meshtf.mesh_impl.spmd._stall_detector import Counter, Stall, StallDetector
from meshtf.mesh_impl.spmd.thread_frames import frames_of_threads
from meshtf.tensorflow_private.cluster_server import abort_collectives
from meshtf.tensorflow_private.eager_context import eager_mode

_LONGEST_PERIOD = 5.0  # seconds between two looks
_LOOKS_PER_TIMEOUT = 10
_LONGEST_BETWEEN_LOOKS = 2.0  # periods; in a longer time the process was stopped
_TENSORFLOW = os.path.join("tensorflow", "python", "")


class Watchdog:
    """Reads the counters of every device. On a stall, it calls `on_stall` and aborts the process's collectives."""

    def __init__(self, on_stall: Callable[[Stall], None]) -> None:
        self._on_stall = on_stall
        self._counters: dict[Counter, tf.Variable] = {}
        self._timeouts: dict[str, float] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def watch(self, device: str, counters: tuple[tf.Variable, ...], timeout: float) -> None:
        """Watches a device's counters. If it is watched already, the shorter timeout applies."""
        with self._lock:
            self._counters.update({(device, i): counter for i, counter in enumerate(counters)})
            known = self._timeouts.get(device)
            self._timeouts[device] = timeout if known is None else min(known, timeout)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="meshtf_watchdog", daemon=True)
                self._thread.start()
                # A thread that is inside TensorFlow during interpreter shutdown would crash the process.
                atexit.register(self._stop)
            elif known is None or timeout < known:
                self._wake.set()  # the thread may be asleep for longer than the new timeout allows

    def is_anybody_inside(self) -> bool:
        """Whether a device is in a collective now."""
        with self._lock:
            counters = list(self._counters.values())
        return any(_value(counter) % 2 for counter in counters)

    def _run(self) -> None:
        detector, running, period = StallDetector(), RunningTime(), 0.0
        while not self._stopped:
            with self._lock:
                counters, timeouts = dict(self._counters), dict(self._timeouts)
            now = running.advance(_LONGEST_BETWEEN_LOOKS * period)
            values = {key: _value(counter) for key, counter in counters.items()}
            if any(value % 2 for value in values.values()) and someone_waits():
                stall = detector.observe(values, timeouts, now)
            else:
                # After an error on one core, the step ends, and other cores never leave their collectives.
                detector, stall = StallDetector(), None
            if stall is not None:
                self._on_stall(stall)
                abort_collectives(tf.errors.DEADLINE_EXCEEDED, str(stall))
                return
            period = min(_LONGEST_PERIOD, min(timeouts.values()) / _LOOKS_PER_TIMEOUT)
            self._wake.wait(period)
            self._wake.clear()

    def _stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=_LONGEST_PERIOD)


def someone_waits() -> bool:
    """Whether a Python thread other than this one is inside TensorFlow."""
    others = (frame for thread, frame in frames_of_threads().items() if thread != threading.get_ident())
    return any(_TENSORFLOW in frame.f_code.co_filename for frame in others)


def _value(counter: tf.Variable) -> int:
    with eager_mode(), tf.device(counter.device):  # even if the program has disabled eager execution
        return int(tf.raw_ops.ReadVariableOp(resource=counter.handle, dtype=tf.int64))
