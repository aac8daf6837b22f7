"""Processes that write one folder together, here as threads over one dictionary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint import CheckpointFolder
from meshtf.checkpoint.chunks import Chunk
from meshtf.checkpoint.remote_checkpoints import RemoteCheckpoints
from meshtf.checkpoint.saving.writing_together import ElsewhereError, write_together
from meshtf.cluster.cluster import Cluster
from meshtf.errors import SaveError
from meshtf.files.remote.remote_folder import RemoteFolder
from tests.cluster.threads_as_processes import in_each

PATIENCE = 0.3
"""How long processes wait for one another where nothing says how long, in seconds. It is 300 in earnest."""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Cluster.gathered

    def gathered(self: Cluster, name: str, value: str, timeout_seconds: float = PATIENCE) -> list[str]:
        return plain(self, name, value, timeout_seconds)

    monkeypatch.setattr(Cluster, "gathered", gathered)


def outcome(call: Callable[[Cluster], Any]) -> Callable[[Cluster], Any]:
    def called(cluster: Cluster) -> Any:
        try:
            return call(cluster)
        except Exception as error:
            return error

    return called


@pytest.mark.parametrize("slow", ["process 1", "the end"])
def test_a_slow_disk_is_waited_for(slow: str, tmp_path: Path) -> None:
    def write(cluster: Cluster) -> None:
        def own(folder: Path) -> None:
            time.sleep(3 * PATIENCE if slow == f"process {cluster.process_index}" else 0)
            (folder / f"process_{cluster.process_index:05d}").touch()

        write_together(
            cluster, tmp_path / "final", own, lambda folder: time.sleep(3 * PATIENCE if slow == "the end" else 0)
        )

    assert in_each(2, outcome(write)) == [None, None]
    assert sorted(path.name for path in (tmp_path / "final").iterdir()) == ["process_00000", "process_00001"]


def test_any_error_of_process_0_is_told_to_all(tmp_path: Path) -> None:
    def finish(folder: Path) -> None:
        raise MemoryError("no memory left")

    found = in_each(2, outcome(lambda cluster: write_together(cluster, tmp_path / "f", lambda _: None, finish)))
    assert [type(error) for error in found] == [ElsewhereError] * 2
    assert {str(error) for error in found} == {"process 0 (host0:4000): no memory left"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_full", [False, True])
def test_all_wait_until_process_0_has_sent(is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()

    def send(self: RemoteCheckpoints, local: Path, step: int) -> None:
        time.sleep(3 * PATIENCE)
        if is_full:
            raise OSError(28, "No space left on device")
        sent.set()

    remote = RemoteCheckpoints(RemoteFolder.open("memory://all_wait"))
    monkeypatch.setattr(RemoteCheckpoints, "send", send)
    module = "meshtf.checkpoint.checkpoint_folder"
    monkeypatch.setattr(f"{module}.write_checkpoint", lambda path, *_: path.mkdir(parents=True, exist_ok=True))

    def save(cluster: Cluster) -> bool:
        clusters[threading.get_ident()] = cluster
        CheckpointFolder(tmp_path, remote=remote).write(3, list[Chunk](), lambda chunk: None, {})  # type: ignore[arg-type]
        return sent.is_set()

    clusters: dict[int, Cluster] = {}
    monkeypatch.setattr(f"{module}.cluster_that_writes", lambda chunks: clusters[threading.get_ident()])
    found = in_each(2, outcome(save))
    if not is_full:
        assert found == [True, True]
        return
    for error in found:
        assert isinstance(error, SaveError)
        assert "process 0 (host0:4000): the checkpoint of step 3 cannot be written to memory://all_wait" in str(error)
