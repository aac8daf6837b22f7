"""Reports which line each process is in, so that a process that waits can say for what, long before it gives up.

A process can be alive and answer, but still be stalled: in a callback, or in the code that makes its data. Every few
seconds each process records the line that its thread for the steps is in. A process that waits for long reads these
records, and reports them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

from meshtf.call_sites import Site
from meshtf.cluster.text_store import TextStore
from meshtf.mesh_impl.spmd.collective_runtime import CollectiveRuntime
from meshtf.mesh_impl.spmd.thread_frames import frames_of_threads
from meshtf_programs.strict_json import json_text

_LOG = logging.getLogger("meshtf.cluster")
_TELL_EVERY_SECONDS = 5.0
_SAY_EVERY_SECONDS = 30.0
_SECONDS_TO_READ, _MOST_SECONDS_TO_READ = 0.5, 5.0
_OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_NOT_THE_USERS = ("<frozen", os.path.join(sysconfig.get_path("stdlib"), ""), sysconfig.get_path("scripts"))
"""The prefixes of file names that belong to Python itself, or to scripts of packages."""


@dataclasses.dataclass(frozen=True)
class Stand:
    """The place where a process was when it last recorded it.

    Attributes:
      place: a line of its user's code, or the program that it is in.
      seconds: the seconds since it last began a program or reached a meeting.
      waits: whether it waits for other processes, in a collective or at a meeting.
      reached: its progress, such as "after step 20", or an empty text.
    """

    place: str
    seconds: float
    waits: bool
    reached: str = ""

    def __str__(self) -> str:
        return f"for {self.seconds:.0f} seconds {self.place}" + (f", {self.reached}" if self.reached else "")


class Activity:
    """The activity of this process that it shares with others: the meeting that it is in, and its progress."""

    def __init__(self) -> None:
        self.reached = ""
        self.num_meetings = 0
        self.meeting: str | None = None

    @contextlib.contextmanager
    def in_meeting(self, name: str) -> Iterator[None]:
        """Marks the process as waiting for the others at a meeting."""
        self.num_meetings += 1
        before, self.meeting = self.meeting, name
        try:
            yield
        finally:
            self.meeting = before


class OwnStand:
    """Finds where this process is: its thread that makes this object and runs the steps, or once that has ended, its
    main thread.
    """

    def __init__(self, runtime: CollectiveRuntime, activity: Activity) -> None:
        self._runtime, self._activity = runtime, activity
        self._thread = threading.get_ident()
        self._moves, self._since = (-1, -1), time.monotonic()

    def look(self) -> Stand:
        now, moves = time.monotonic(), (self._runtime.num_steps, self._activity.num_meetings)
        if moves != self._moves:
            self._moves, self._since = moves, now
        place, waits = self._place()
        return Stand(place, now - self._since, waits, self._activity.reached)

    def _place(self) -> tuple[str, bool]:
        meeting, running = self._activity.meeting, self._runtime.running
        if running is not None and self._runtime.is_in_collective():
            return f"in a collective of {running}", True
        if running is not None:
            return f"in {running}, which it compiles or computes", False
        if meeting is not None:
            return f"where all processes meet ({meeting})", True
        return f"at {self._line()}", False

    def _line(self) -> Site:
        frames = frames_of_threads()
        return site_of(frames.get(self._thread) or frames[threading.main_thread().ident or 0])


def site_of(frame: FrameType) -> Site:
    """Returns the innermost line of a thread's stack in the user's files, else in meshtf's files, else in any file."""
    frames = [frame]
    while (caller := frames[-1].f_back) is not None:
        frames.append(caller)
    chosen = next((each for is_meant in (_is_users, _is_meshtfs) for each in frames if is_meant(each)), frame)
    return Site(chosen.f_code.co_filename, chosen.f_lineno, chosen.f_code.co_name)


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return not (_is_meshtfs(frame) or file.startswith(_NOT_THE_USERS) or "-packages" in file)


def _is_meshtfs(frame: FrameType) -> bool:
    module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    return module.partition(".")[0] == "meshtf" or file.startswith(_OWN_FOLDER)


class StallMonitor:
    """A thread that records where this process is. If the process waits for long, it reports for which others."""

    def __init__(
        self, process_index: int, addresses: tuple[str, ...], store: TextStore, look: Callable[[], Stand]
    ) -> None:
        self._own, self._addresses, self._store, self._look = process_index, addresses, store, look
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meshtf_stands", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=_TELL_EVERY_SECONDS)

    def waited_for(self) -> str:
        """Returns text on the processes that this one may wait for, and their last recorded places."""
        end = time.monotonic() + _MOST_SECONDS_TO_READ
        others = [i for i in range(len(self._addresses)) if i != self._own]
        stands = {i: self._told_by(i) if time.monotonic() < end else None for i in others}
        return described(stands, self._addresses)

    def _run(self) -> None:
        said = 0.0
        while not self._stopped.wait(_TELL_EVERY_SECONDS):
            stand = self._look()
            self._tell(stand)
            said = min(said, stand.seconds)
            if stand.waits and stand.seconds - said >= _SAY_EVERY_SECONDS:
                said = stand.seconds
                _LOG.warning("this process has waited %s. It waits for %s", stand, self.waited_for())

    def _tell(self, stand: Stand) -> None:
        with contextlib.suppress(ConnectionError):  # process 0 is gone, which is noticed elsewhere
            self._store.replace(self._key(self._own), json_text(dataclasses.asdict(stand)))

    def _told_by(self, process: int) -> Stand | None:
        with contextlib.suppress(ConnectionError):
            text = self._store.get(self._key(process), _SECONDS_TO_READ)
            return None if text is None else Stand(**json.loads(text))
        return None

    @staticmethod
    def _key(process: int) -> str:
        return f"meshtf_stands/{process}"


def described(stands: Mapping[int, Stand | None], addresses: tuple[str, ...]) -> str:
    """Returns text on the processes that are not waiting themselves, or on all processes if all are waiting."""
    chosen = {i: stand for i, stand in stands.items() if stand is None or not stand.waits} or stands
    return "; ".join(
        f"process {i} ({addresses[i]}), which "
        + ("has not reported where it is" if stand is None else f"reported no progress {stand}")
        for i, stand in chosen.items()
    )
