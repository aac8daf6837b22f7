"""The processes that this one has joined.

What a `Cluster` promises:

- Every process has the same `num_processes` and `addresses`, and a `process_index` of its own, from 0; process 0 leads.
- A text that one process puts under a key is read by all, for as long as they run; keys of one start are never seen by
  another. A barrier is passed by none before all have come to it.
- Nothing waits for ever: what is waited for comes, or within its time limit an error names who did not bring it.
- A process that dies, is stopped or cut off is named by all others, at the latest some seconds after
  `heartbeat_timeout_seconds`: what they wait in ends with a ProcessLostError, and so does what they call later.
- One that ends by an error of its own is named with it, a second or two later.
- One that lives and stands still is named, with the line that it is in, every thirty seconds by those who wait for it.
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
from meshtf.cluster._whereabouts import Activity, Whereabouts
from meshtf.cluster.fingerprint import digest, first_difference, first_differing
from meshtf.cluster.text_store import TextStore
from meshtf.errors import ClusterError, MeshtfError, ProcessLostError
from meshtf_programs.strict_json import json_text

_PREFIX = "meshtf"
_SHORTEST_WAIT_AT_ONCE, _LONGEST_WAIT_AT_ONCE = 0.5, 1.0
"""Of one question: an answer that is there takes a while where the machine is busy."""
_DEFAULT_TIMEOUT = 300.0
_HEARTBEATS_TO_END = 3
"""So many times `heartbeat_timeout_seconds`, a process that ends stays for others that have not come to their ends."""

_DIFFERENT = """\
{what} differs between process 0 and process {process}, in its {part}. The first difference:
  process 0: {first}
  process {process}: {other}
Every process must run the same program, with the same arguments."""


@dataclasses.dataclass(frozen=True, eq=False)
class Cluster:
    """Processes that compute together, as `mtf.initialize_cluster` returns them.

    Every process has the same `addresses`, and a `process_index` of its own; process 0 leads. What is waited for comes,
    or within its time limit an error names who did not bring it.

    Attributes:
      process_index: which process this is, from 0.
      addresses: of all processes, as "host:port".
      heartbeat_timeout_seconds: after which a process that does not answer counts as lost.
    """

    process_index: int
    addresses: tuple[str, ...]
    heartbeat_timeout_seconds: float
    _store: TextStore
    _watch: PeerWatch | None
    _whereabouts: Whereabouts | None = None
    _activity: Activity = dataclasses.field(default_factory=Activity)
    _meetings: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    _has_failed: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def num_processes(self) -> int:
        return len(self.addresses)

    @property
    def is_leader(self) -> bool:
        """Whether this is process 0: the one that writes what is written once."""
        return self.process_index == 0

    @property
    def lost(self) -> Lost | None:
        """The processes that are gone, once that is known."""
        return None if self._watch is None else self._watch.lost

    @property
    def is_well(self) -> bool:
        """Whether nobody is gone, and this process has not failed."""
        return self.lost is None and not self._has_failed.is_set() and getattr(sys, "last_value", None) is None

    def check_complete(self) -> None:
        """Raises ProcessLostError where a process is known to be gone."""
        if self.lost is not None:
            raise ProcessLostError(f"{self.lost}. {_RESTART}")

    def explained_loss(self) -> Lost | None:
        """After a failure that may be another process's end: who is gone, waited for until it would be known.

        Then it waits as long again as the others may need to see the same, before this process ends, too.
        """
        if self._watch is None:
            return None
        lost = self._watch.wait_for_loss(self.heartbeat_timeout_seconds + 3 * self._watch.period)
        if lost is not None:
            time.sleep(4 * self._watch.period)
        return lost

    def put(self, key: str, value: str) -> None:
        """Makes a text known to all under a key, once."""
        self.check_complete()
        try:
            self._store.put(f"{_PREFIX}/{key}", value)
        except ConnectionError as error:
            raise self._unreachable(error) from None

    def get(self, key: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> str:
        """The text under a key, waited for.

        Raises:
          ClusterError: it did not come in time.
          ProcessLostError: a process was lost meanwhile.
        """
        value = self._awaited(lambda seconds: self._store.get(f"{_PREFIX}/{key}", seconds), timeout_seconds)
        if value is None:
            raise ClusterError(
                f'no process has put "{key}" into the key-value store within {timeout_seconds:g} seconds'
            )
        return value

    def gathered(self, name: str, value: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> list[str]:
        """What each process gives under a name that is used once, by index.

        Raises:
          ClusterError: some did not come to it in time, which are named.
          ProcessLostError: a process was lost meanwhile.
        """
        with self._activity.in_meeting(name):
            self.put(f"{name}/{self.process_index}", value)
            end = time.monotonic() + timeout_seconds
            found = [self._of(name, i, max(end - time.monotonic(), 0.0)) for i in range(self.num_processes)]
            late = [f"process {i} ({self.addresses[i]})" for i, text in enumerate(found) if text is None]
            if late:
                where = "" if self._whereabouts is None else f". As they told: {self.waited_for()}"
                raise ClusterError(
                    f"{', '.join(late)} did not come to {name} within {timeout_seconds:g} seconds{where}"
                )
            self._let_all_read(name)
        return [text for text in found if text is not None]

    def meeting(self, name: str) -> str:
        """A name that is used once, for `gathered`: the same in all processes that ask for this name equally often."""
        self._meetings[name] += 1
        return f"{name}/{self._meetings[name]}"

    def barrier(self, name: str, timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
        """Returns when every process has called it with this name, which is used once. Errors as `gathered`."""
        self.gathered(f"barrier/{name}", "", timeout_seconds)

    def check_alike(self, what: str, parts: Mapping[str, str], timeout_seconds: float = _DEFAULT_TIMEOUT) -> None:
        """Called by all processes in the same order, with texts by name that must be the same in all.

        Args:
          what: whose texts they are, for the message, such as 'program "train"'.
          parts: compared in their order.
          timeout_seconds: for the others to come.

        Raises:
          ClusterError: in every process, with the first difference; or some process did not come, which is named.
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
        """How far this process is, such as "after step 20", for those who wait for it."""
        self._activity.reached = what

    def waited_for(self) -> str:
        """In words, the processes for which this one may wait, and where they stood when they last told."""
        return "others" if self._whereabouts is None else self._whereabouts.waited_for()

    def tell_failure(self, what: str) -> None:
        """Lets all others end, since this process will: they name it, and what failed in it.

        Returns when they have heard, or are gone, or some time has passed.
        """
        self._has_failed.set()
        news = FailureNews(self._store, self.process_index, self.addresses)
        if self.lost is not None:
            return
        if not news.tell(what):
            news.hear(_SHORTEST_WAIT_AT_ONCE)  # of the first that failed, which waits for that
            return
        left = _HEARTBEATS_TO_END * self.heartbeat_timeout_seconds
        for i in set(range(self.num_processes)) - {self.process_index}:
            while left > 0 and self.lost is None and not news.has_heard(i, _SHORTEST_WAIT_AT_ONCE):
                left -= _SHORTEST_WAIT_AT_ONCE

    def leave(self) -> None:
        """Waits a little for the others to come to their ends, so that none takes this one for dead. Asks no more.

        Where the program ended by an error that nobody caught, they are told.
        """
        uncaught = getattr(sys, "last_value", None)
        if uncaught is not None:
            self.tell_failure(f"{type(uncaught).__name__}: {uncaught}")
        if not self._has_failed.is_set():
            with contextlib.suppress(MeshtfError):
                self.gathered("end", "", _HEARTBEATS_TO_END * self.heartbeat_timeout_seconds)
        for watch in (self._watch, self._whereabouts):
            if watch is not None:
                watch.stop()

    def _let_all_read(self, name: str) -> None:
        """Process 0, with which the texts go, stays until the others have read, or are gone.

        Nobody fails here: each has read what it needs.
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
        """Read again and again, so that a loss is seen meanwhile.

        Time counts in which it was read: none in which this process stood still, with its machine perhaps.
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
        lost = self.explained_loss() or f"process 0 ({self.addresses[0]}) is not reached: {error}"
        return ProcessLostError(f"{lost}. {_RESTART}")


_RESTART = "Start all processes again; training resumes from its last checkpoint"
