"""Saves checkpoints while training continues."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from meshtf.checkpoint.checkpoint_folder import CheckpointFolder, check_step
from meshtf.checkpoint.chunks import Chunk
from meshtf.checkpoint.manifest import checked_state
from meshtf.checkpoint.saving._host_buffers import HostBuffers
from meshtf.checkpoint.saving.write_checkpoint import check_not_empty
from meshtf.lowering.variable_store import VariableStore

_LOWEST_PRIORITY = 19


class BackgroundSaver:
    """Saves into a folder from a thread of low priority.

    `save` copies one replica of each slice into buffers on the host, and returns. The thread writes them. Every save
    uses the same buffers. Use it with `with`, which waits at the end:

        with BackgroundSaver(folder) as saver:
            ...
            saver.save(step, store, state)

    A process that ends normally also waits for the thread.
    """

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self._buffers = HostBuffers()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def save(self, step: int, store: VariableStore, state: Mapping[str, Any]) -> None:
        """Begins to save. Call it between steps. If the previous save is still being written, it waits for that first.

        Raises:
          SaveError: if the previous save failed. This save has begun nevertheless.
          CheckpointError: if the store is empty, the step is no number of steps, or JSON cannot hold the state.
        """
        check_step(step)
        kept = checked_state(state)
        self._finish()
        chunks = self._buffers.copy(store)
        check_not_empty(chunks)
        failure = self._join()  # only now: if this save had been refused, a later call would still raise it
        self._thread = threading.Thread(
            target=self._write, args=(step, chunks, kept), name=f"checkpoint of step {step}"
        )
        self._thread.start()
        if failure is not None:
            raise failure

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
          SaveError: if the last save failed, and no earlier call has raised the error.
        """
        failure = self._join()
        if failure is not None:
            raise failure

    def __enter__(self) -> BackgroundSaver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        failure = self._join()
        if failure is not None and error is None:
            raise failure

    def _write(self, step: int, chunks: Sequence[Chunk], state: Mapping[str, Any]) -> None:
        if sys.platform == "linux":  # elsewhere this would be the priority of the whole process
            with contextlib.suppress(OSError):  # a sandbox may refuse it
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOWEST_PRIORITY)
        try:
            self.folder.write(step, chunks, self._buffers.value_of, state)
        except BaseException as error:
            self._failure = error

    def _finish(self) -> None:
        """Waits for the thread."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _join(self) -> BaseException | None:
        """Waits for the thread. If it failed, the first call returns the failure, and later calls return None."""
        self._finish()
        failure, self._failure = self._failure, None
        return failure
