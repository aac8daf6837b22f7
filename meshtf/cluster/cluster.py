"""The processes that this one has joined.

A `Cluster` promises:

- Every process has the same `num_processes` and `addresses`, and a `process_index` of its own, from 0. Process 0 leads.
- All processes can read a text that one puts under a key, for as long as they run. Another start never sees these keys.
- No process passes a barrier before all have reached it.
- Nothing waits for ever. After a time limit, an error names the process that did not answer.
- If a process dies, is stopped or is cut off, all others name it at most some seconds after
  `heartbeat_timeout_seconds`. Waiting calls then end with a ProcessLostError, and so do later calls.
- If a process ends because of its own error, the others name it and its error a second or two later.
- If a process is alive but stalled, processes that wait for it name it every thirty seconds, with the line that it is
  in.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping

from meshtf.cluster._failure_news import FailureNews
from meshtf.cluster._peer_watch import Lost, PeerWatch
from meshtf.cluster._stall_monitor import Activity, StallMonitor
from meshtf.cluster.fingerprint import digest, first_difference, first_differing
from meshtf.cluster.text_store import TextStore
from meshtf.errors import ClusterError, MeshtfError, ProcessLostError
from meshtf_programs.strict_json import json_text

_PREFIX = "meshtf"
_SHORTEST_WAIT_AT_ONCE, _LONGEST_WAIT_AT_ONCE = 0.5, 1.0
"""Seconds to wait for one answer. On a busy machine even an immediate answer takes a while."""
_DEFAULT_TIMEOUT = 300.0
_HEARTBEATS_TO_END = 3
"""A process that ends waits this many times `heartbeat_timeout_seconds` for others that have not ended yet."""

_DIFFERENT = """\
{what} differs between process 0 and process {process}, in its {part}. The first difference:
  process 0: {first}
  process {process}: {other}
Every process must run the same program, with the same arguments."""


@dataclasses.dataclass(frozen=True, eq=False)
class Cluster:
    """Processes that compute together, as `mtf.initialize_cluster` returns them.

    Every process has the same `addresses`, and a `process_index` of its own. Process 0 leads. Nothing waits for ever.
    After a time limit, an error names the process that did not answer.

    Attributes:
      process_index: the index of this process, from 0.
      addresses: the addresses of all processes, as "host:port".
      heartbeat_timeout_seconds: the time after which a process that does not answer counts as lost.
    """

    process_index: int
    addresses: tuple[str, ...]
    heartbeat_timeout_seconds: float
    _store: TextStore
    _watch: PeerWatch | None
    _stall_monitor: StallMonitor | None = None
    _activity: Activity = dataclasses.field(default_factory=Activity)
    _meetings: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    _has_failed: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def num_processes(self) -> int:
        return len(self.addresses)

    @property
    def is_leader(self) -> bool:
        """Whether this is process 0, which writes the files that only one process must write."""
        return self.process_index == 0

    @property
    def lost(self) -> Lost | None:
        """The lost processes, or None while none is known to be lost."""
        return None if self._watch is None else self._watch.lost

    @property
    def is_well(self) -> bool:
        """Whether no process is lost, and this process has not failed."""
        return self.lost is None and not self._has_failed.is_set() and getattr(sys, "last_value", None) is None

    def check_complete(self) -> None:
        """Raises ProcessLostError if a process is known to be lost."""
        if self.lost is not None:
            raise ProcessLostError(f"{self.lost}. {_RESTART}")

    def explained_loss(self) -> Lost | None:
        """Returns the lost processes, after a failure that may come from the end of another process. It waits until
        that would be known.

        Then it waits as long again, because the others may need this time to detect the same before this process ends.
        """
        if self._watch is None:
            return None
        lost = self._watch.wait_for_loss(self.heartbeat_timeout_seconds + 3 * self._watch.period)
        if lost is not None:
            time.sleep(4 * self._watch.period)
        return lost

    def put(self, key: str, value: str) -> None:
        """Puts a text under a key, once, so that all processes can read it."""
        self.check_complete()
        try:
            self._store.put(f"{_PREFIX}/{key}", value)
        except ConnectionError as error:
            raise self._unreachable(error) from None

    def get(self, key: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> str:
        """Waits for the text under a key.

        Raises:
          ClusterError: if no process puts the text in time.
          ProcessLostError: if a process was lost while it waited.
        """
        value = self._awaited(lambda seconds: self._store.get(f"{_PREFIX}/{key}", seconds), timeout_seconds)
        if value is None:
            raise ClusterError(
                f'no process has put "{key}" into the key-value store within {timeout_seconds:g} seconds'
            )
        return value

    def gathered(self, name: str, value: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> list[str]:
        """Returns the texts that all processes give under a name, by index. A name is used once.

        Raises:
          ClusterError: if some texts are missing after the timeout. The message names their processes.
          ProcessLostError: if a process was lost while it waited.
        """
        with self._activity.in_meeting(name):
            self.put(f"{name}/{self.process_index}", value)
            end = time.monotonic() + timeout_seconds
            found = [self._of(name, i, max(end - time.monotonic(), 0.0)) for i in range(self.num_processes)]
            late = [f"process {i} ({self.addresses[i]})" for i, text in enumerate(found) if text is None]
            if late:
                where = "" if self._stall_monitor is None else f". From their last reports: {self.waited_for()}"
                raise ClusterError(f"{', '.join(late)} did not reach {name} within {timeout_seconds:g} seconds{where}")
            self._let_all_read(name)
        return [text for text in found if text is not None]

    def meeting(self, name: str) -> str:
        """Returns a unique name for `gathered`. The n-th call with `name` returns the same name in all
        processes.
        """
        self._meetings[name] += 1
        return f"{name}/{self._meetings[name]}"

    def barrier(self, name: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
        """Returns when every process has called it with this name. A name is used once. It raises the errors of
        `gathered`.
        """
        self.gathered(f"barrier/{name}", "", timeout_seconds)

    def check_alike(self, what: str, parts: Mapping[str, str], timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
        """Checks that texts are the same in all processes. All of them call it, in the same order.

        Args:
          what: the owner of the texts, for the message, such as 'program "train"'.
          parts: the texts by name, compared in their order.
          timeout_seconds: how long to wait for the others.

        Raises:
          ClusterError: in every process, if texts differ, with the first difference. Also if some process is late.
        """
        name = self.meeting("alike")
        own = {"name": what, **parts}
        digests = json_text({part: digest(text) for part, text in own.items()})
        everybody = [json.loads(text) for text in self.gathered(name, digests, timeout_seconds)]
        found = first_differing(everybody)
        if found is None:
            return
        process, part = found
        if self.process_index in (0, process):
            self.put(f"{name}/text/{self.process_index}", own.get(part, ""))
        texts = [self.get(f"{name}/text/{i}", timeout_seconds) for i in (0, process)]
        self._let_all_read(f"{name}/text")
        first, other = first_difference(*texts)
        raise ClusterError(_DIFFERENT.format(what=what, process=process, part=part, first=first, other=other))

    def reached(self, what: str) -> None:
        """Records the progress of this process, such as "after step 20", for processes that wait for it."""
        self._activity.reached = what

    def waited_for(self) -> str:
        """Returns text on the processes that this one may wait for, and their last recorded places."""
        return "others" if self._stall_monitor is None else self._stall_monitor.waited_for()

    def tell_failure(self, what: str) -> None:
        """Announces to all others that this process will end, so that they end too. They report it and its failure.

        Returns when they have read this or have ended, or after some time.
        """
        self._has_failed.set()
        news = FailureNews(self._store, self.process_index, self.addresses)
        if self.lost is not None:
            return
        if not news.tell(what):
            news.hear(_SHORTEST_WAIT_AT_ONCE)  # the process that failed first waits until all have heard
            return
        left = _HEARTBEATS_TO_END * self.heartbeat_timeout_seconds
        for i in set(range(self.num_processes)) - {self.process_index}:
            while left > 0 and self.lost is None and not news.has_heard(i, _SHORTEST_WAIT_AT_ONCE):
                left -= _SHORTEST_WAIT_AT_ONCE

    def leave(self) -> None:
        """Waits a little until the others end as well, so that none of them counts this process as lost. Then it stops
        watching.

        If an uncaught error ended the program, it announces this to the others.
        """
        uncaught = getattr(sys, "last_value", None)
        if uncaught is not None:
            self.tell_failure(f"{type(uncaught).__name__}: {uncaught}")
        if not self._has_failed.is_set():
            with contextlib.suppress(MeshtfError):
                self.gathered("end", "", _HEARTBEATS_TO_END * self.heartbeat_timeout_seconds)
        for watch in (self._watch, self._stall_monitor):
            if watch is not None:
                watch.stop()

    def _let_all_read(self, name: str) -> None:
        """Makes process 0 wait until the others have read the texts or are gone, since the texts would end with it.

        No error is raised here, since each process has read the texts that it needs.
        """
        if not self.is_leader:
            with contextlib.suppress(ConnectionError):
                self._store.put(f"{_PREFIX}/{name}/read/{self.process_index}", "")
            return
        with contextlib.suppress(ProcessLostError):
            for i in range(1, self.num_processes):
                self._of(f"{name}/read", i, _DEFAULT_TIMEOUT)

    def _of(self, name: str, process: int, seconds: float) -> str | None:
        return self._awaited(lambda at_once: self._store.get(f"{_PREFIX}/{name}/{process}", at_once), seconds)

    def _awaited(self, read: Callable[[float], str | None], seconds: float) -> str | None:
        """Reads repeatedly, so that it detects a lost process while it waits.

        Only the time of the reads counts. Time in which this process or its machine was halted does not.
        """
        left = seconds
        while True:
            self.check_complete()
            at_once = min(max(left, _SHORTEST_WAIT_AT_ONCE), _LONGEST_WAIT_AT_ONCE)
            try:
                value = read(at_once)
            except ConnectionError as error:
                raise self._unreachable(error) from None
            left -= at_once
            if value is not None or left <= 0:
                return value

    def _unreachable(self, error: ConnectionError) -> ProcessLostError:
        lost = self.explained_loss() or f"process 0 ({self.addresses[0]}) cannot be reached: {error}"
        return ProcessLostError(f"{lost}. {_RESTART}")


_RESTART = "Start all processes again; training resumes from its last checkpoint"
