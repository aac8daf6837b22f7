"""Decisions that the processes of a cluster take together, and work that only one of them does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from meshtf.checkpoint import SavedCheckpoint
from meshtf.checkpoint.reading.saved_values import SavedValues
from meshtf.checkpoint.saving.writing_together import check_folder_is_shared
from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError, CollectiveError, NonFiniteError, SaveError
from meshtf.files.held_folder import HeldFolder
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.train.monitoring.metrics import digest_of
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import StopRequest
from meshtf_programs.strict_json import json_text

Value = TypeVar("Value")

_DIFFERENT_STARTS = """\
the processes would continue from different steps: {steps}. They see different checkpoints in {folder}; is it on a \
disk that all share?"""

_COME_TO_ALL = (CollectiveError, ClusterError, NonFiniteError, SaveError)
"""Errors that all processes of a cluster raise together. An id out of range is seen only where it is fed."""


class OthersRefuseError(ClusterError):
    """Another process cannot take part, and says why."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Common decisions of the processes that this one has joined. Without a cluster, this process decides alone at no
    cost.

    All processes call every method, in the same order.
    """

    cluster: Cluster | None

    @classmethod
    def of_this_process(cls) -> Agreement:
        """Returns an agreement with the processes that this one has joined by now."""
        return cls(collective_runtime().cluster)

    @property
    def is_leader(self) -> bool:
        """Whether this process shows progress, and writes the files that are written only once."""
        return self.cluster is None or self.cluster.is_leader

    def first_wishes(self, wishes: Mapping[str, str | None]) -> dict[str, str | None]:
        """Returns, for each name, the request of the first process that has one. All processes pass the same
        names.
        """
        if self.cluster is None:
            return dict(wishes)
        said = [json.loads(each) for each in self._gathered("wishes", json_text(wishes))]
        return {name: next((each[name] for each in said if each[name] is not None), None) for name in wishes}

    def first_text(self, text: str | None) -> str | None:
        """Returns the text of the first process that has one."""
        if self.cluster is None:
            return text
        said = [json.loads(each) for each in self._gathered("text", json_text(text))]
        return next((each for each in said if each is not None), None)

    def check_none_refuses(self, refusal: str = "") -> None:
        """Raises OthersRefuseError if another process passes a refusal, which is a text."""
        if self.cluster is None:
            return
        said = self._gathered("refusal", refusal)
        others = [f"process {i} ({self.cluster.addresses[i]}): {text}" for i, text in enumerate(said) if text]
        if others and not refusal:
            raise OthersRefuseError("another process cannot take part:\n" + "\n".join(others))

    def reached(self, step: int) -> None:
        """Tells processes that wait for this one which step it has finished."""
        if self.cluster is not None:
            self.cluster.reached(f"after step {step}")

    def signed(self, failure: str) -> str:
        """Returns a failure of this process as text for the others."""
        assert self.cluster is not None
        own = self.cluster.process_index
        return f"process {own} ({self.cluster.addresses[own]}) has failed: {failure}"

    def tell_failure(self, error: BaseException, message: str) -> None:
        """Reports a failure to the others, so that they end. Errors that all processes raise are not reported."""
        if self.cluster is not None and not isinstance(error, _COME_TO_ALL):
            self.cluster.tell_failure(message)

    def leader_first(self, do: Callable[[], Value]) -> Value:
        """Calls `do` in process 0 and then in the others, because they depend on its changes. A failure in one
        process fails all.
        """
        if not self.is_leader:
            self.check_none_refuses()
        result = self._told(do)
        if self.is_leader:
            self.check_none_refuses()
        self.check_none_refuses()
        return result

    def check_same_step(self, step: int, folder: RunFolder) -> None:
        """Raises ClusterError if the processes found checkpoints of different steps."""
        if self.cluster is None:
            return
        steps = self._gathered("step", str(step))
        if len(set(steps)) > 1:
            found = ", ".join(f"process {i}: {found}" for i, found in enumerate(steps))
            raise ClusterError(_DIFFERENT_STARTS.format(steps=found, folder=folder.checkpoints().shown))

    def digest_of(self, variables: VariableStore, saved_last: Callable[[], SavedCheckpoint]) -> str:
        """Returns the hash of all variables. In a cluster no process has all of them, so process 0 reads the
        checkpoint just saved, and the others return "".
        """
        if self.cluster is None:
            return digest_of(variables)
        if not self.is_leader:
            return ""
        return digest_of(SavedValues(saved_last(), variables))

    def stop(self, own: StopRequest) -> StopRequest:
        """Returns a request to stop that reaches every process at the same place, whichever process was asked."""
        return own if self.cluster is None else _AgreedStop(self, own)

    @contextlib.contextmanager
    def own_folder(self, folder: RunFolder) -> Iterator[RunFolder]:
        """Yields the run's folder in the first process, and in each other process a temporary folder with the same
        checkpoints.

        Raises:
          CheckpointError: in every process, if some see another folder.
        """
        if self.cluster is not None:
            check_folder_is_shared(self.cluster, folder.path)
        if self.is_leader:
            yield folder
            return
        held = HeldFolder("meshtf_process_")
        try:
            own = RunFolder(held.path, folder.checkpoints().folder, folder.storage)
            if folder.metrics.exists():
                own.metrics.write_bytes(folder.metrics.read_bytes())
            yield own
        finally:
            held.remove()

    def _told(self, do: Callable[[], Value]) -> Value:
        try:
            return do()
        except Exception as error:
            self.check_none_refuses(f"{type(error).__name__}: {error}")
            raise

    def _gathered(self, name: str, text: str) -> list[str]:
        assert self.cluster is not None
        return self.cluster.gathered(self.cluster.meeting(name), text)


class _AgreedStop(StopRequest):
    """A stop request from any process. Until it is true, all processes must check it together."""

    def __init__(self, agreement: Agreement, own: StopRequest) -> None:
        super().__init__()
        self._agreement, self._own = agreement, own

    def __bool__(self) -> bool:
        if self.signal is None:
            number = self._agreement.first_text(None if self._own.signal is None else str(int(self._own.signal)))
            self.signal = None if number is None else signal.Signals(int(number))
        return self.signal is not None
