"""Processes that write one folder together, here as threads over one dictionary."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint.saving.writing_together import ElsewhereError, write_together
from meshtf.cluster.cluster import Cluster
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
