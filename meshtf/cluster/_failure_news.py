"""The news that a process ends because of an error of its own, for processes that would wait for it."""

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
    """The first failure of a job. Later failures follow from it and are not told.

    Attributes:
      store: the texts that all processes share.
      process_index: the index of this process.
      addresses: the addresses of all processes.
    """

    store: TextStore
    process_index: int
    addresses: tuple[str, ...]

    def tell(self, what: str) -> bool:
        """Tells the others of a failure. Returns whether it is the first one that they hear of."""
        try:
            self.store.put(_FAILED, json_text([self.process_index, what]))
        except ConnectionError:
            return False
        return True

    def hear(self, timeout_seconds: float) -> Lost | None:
        """Returns which other process fails, and why, once it has told.

        `timeout_seconds`: the time in which process 0 must answer whether some process has told. On a busy machine this
        takes a while.
        """
        try:
            text = self.store.get(_FAILED, timeout_seconds)
        except ConnectionError:  # process 0 is gone, which is noticed elsewhere
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
