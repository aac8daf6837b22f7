"""Announces that a process ends because of its own error, so that the others do not wait for it."""

from __future__ import annotations

import contextlib
import dataclasses
import json

from meshtf.cluster._peer_watch import Lost
from meshtf.cluster.text_store import TextStore
from meshtf_programs.strict_json import json_text

_FAILED, _HEARD = "meshtf_failed", "meshtf_heard"


@dataclasses.dataclass(frozen=True)
class FailureNews:
    """Announces and receives the first failure of a job. Later failures follow from it and are not announced.

    Attributes:
      store: the store that all processes share.
      process_index: the index of this process.
      addresses: the addresses of all processes.
    """

    store: TextStore
    process_index: int
    addresses: tuple[str, ...]

    def tell(self, what: str) -> bool:
        """Announces a failure to the others. Returns whether it is the first one."""
        try:
            self.store.put(_FAILED, json_text([self.process_index, what]))
        except ConnectionError:
            return False
        return True

    def hear(self, timeout_seconds: float) -> Lost | None:
        """Returns which other process has announced a failure, with the reason, or None.

        `timeout_seconds`: how long to wait for process 0, which stores the announcement. On a busy machine an answer
        takes a while.
        """
        try:
            text = self.store.get(_FAILED, timeout_seconds)
        except ConnectionError:  # process 0 is gone, which `PeerWatch` detects
            return None
        if text is None or json.loads(text)[0] == self.process_index:
            return None
        process, what = json.loads(text)
        with contextlib.suppress(ConnectionError):
            self.store.put(f"{_HEARD}/{self.process_index}", "")
        return Lost({process: f"process {process} ({self.addresses[process]}) has failed: {what}"})

    def has_heard(self, process: int, timeout_seconds: float) -> bool:
        with contextlib.suppress(ConnectionError):
            return self.store.get(f"{_HEARD}/{process}", timeout_seconds) is not None
        return False
