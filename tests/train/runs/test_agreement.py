"""What processes decide together: the same in all, and what one refuses is told to the others."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from meshtf.checkpoint import CheckpointFolder
from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError
from meshtf.train.runs import agreement
from meshtf.train.runs.agreement import Agreement, OthersRefuseError
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import StopRequest
from tests.cluster.joined_processes import JoinedProcesses


def agree(cluster: Cluster, folder: Path) -> dict[str, object]:
    agreement, own = Agreement.of_this_process(), cluster.process_index
    errors: list[tuple[str, str]] = []

    def fails_in(process: int) -> str:
        if own == process:
            raise OSError("no such folder")
        return "done"

    for process in (0, 1):
        try:
            agreement.leader_first(lambda process=process: fails_in(process))
        except (OSError, OthersRefuseError) as error:
            errors.append((type(error).__name__, str(error)))
    try:
        agreement.check_same_step(10 * own, RunFolder(folder))
    except ClusterError as error:
        errors.append((type(error).__name__, str(error)))
    agreement.check_same_step(10, RunFolder(folder))
    request = StopRequest()
    stop = agreement.stop(request)
    before = bool(stop)
    request.signal = signal.SIGTERM if own else None
    after = bool(stop)
    with agreement.own_folder(RunFolder(folder)) as found:
        is_own = found.path == folder
        checkpoints = found.checkpoints()
    return {
        "errors": errors,
        "wishes": agreement.first_wishes({"a": None, "b": f"of {own}", "c": "of 1" if own else None}),
        "text": [agreement.first_text(text) for text in (None, f"of {own}", "of 1" if own else None)],
        "stop": (before, after, stop.signal),
        "folder": (is_own, found.path.exists(), CheckpointFolder(folder / "checkpoints").folder == checkpoints.folder),
        "leader": agreement.is_leader,
    }


@pytest.mark.timeout(600)
def test_two_processes_agree(tmp_path: Path) -> None:
    with JoinedProcesses(2, cpus=1, heartbeat_timeout_seconds=30) as processes:
        found = processes.run(agree, tmp_path)
    (first, second, third), (other_first, other_second, other_third) = (each["errors"] for each in found)
    assert first == other_second == ("OSError", "no such folder")
    for told, process in ((other_first, 0), (second, 1)):
        assert told[0] == "OthersRefuseError"
        assert f"process {process} (127.0.0.1:" in told[1]
        assert "OSError: no such folder" in told[1]
    assert third == other_third
    assert "process 0: 0, process 1: 10" in third[1]
    for own, each in enumerate(found):
        assert each["wishes"] == {"a": None, "b": "of 0", "c": "of 1"}
        assert each["text"] == [None, "of 0", "of 1"]
        assert each["stop"] == (False, True, signal.SIGTERM)
        assert each["folder"] == (own == 0, own == 0, True)
        assert each["leader"] == (own == 0)


def test_a_process_by_itself_agrees_with_itself(tmp_path: Path) -> None:
    agreement, request, folder = Agreement(None), StopRequest(), RunFolder(tmp_path)
    assert agreement.is_leader
    assert agreement.first_wishes({"a": None, "b": "c"}) == {"a": None, "b": "c"}
    assert agreement.first_text("a") == "a"
    assert agreement.leader_first(lambda: 3) == 3
    assert agreement.stop(request) is request
    with agreement.own_folder(folder) as own:
        assert own is folder


def test_another_process_has_a_folder_of_its_own_as_long_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.metrics.write_text("{}\n")
    follower = Agreement(cast("Cluster", SimpleNamespace(is_leader=False)))
    monkeypatch.setattr(agreement, "check_folder_is_shared", lambda *_: None)
    with follower.own_folder(folder) as own:
        assert own.path.name.startswith("meshtf_process_")
        assert own.metrics.read_text() == "{}\n"
        assert own.checkpoints().folder == folder.checkpoints().folder
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
