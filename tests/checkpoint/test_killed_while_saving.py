"""SIGKILL while a checkpoint is being written: the newest readable one is whole, and training resumes bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.checkpoint import CheckpointFolder
from tests.fresh_process import run_fresh

WORKER = Path(__file__).parent / "saving_worker.py"


@pytest.mark.parametrize(
    ("kills", "seed"), [(4, 0), pytest.param(30, 1, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_killed_while_saving(tmp_path: Path, kills: int, seed: int) -> None:
    done = run_fresh([str(WORKER), str(tmp_path), str(kills), str(seed)], timeout_seconds=800)
    assert done.status == 0, done.stderr
    digests: dict[str, str] = {}
    resumed = []
    for line in (tmp_path / "log").read_text().splitlines():
        kind, step, digest = line.split()
        assert digests.setdefault(step, digest) == digest, f"step {step} is not what it was before the kill"
        if kind == "resumed":
            resumed.append(int(step))
    assert len(resumed) == kills - 1
    assert resumed == sorted(set(resumed)), "a whole checkpoint was lost"
    folder = CheckpointFolder(tmp_path / "checkpoints")
    folder.remove_unfinished()
    newest = folder.newest_readable()
    assert newest is not None
    assert newest.step >= resumed[-1]
    assert {path.name for path in folder.folder.iterdir()} == {folder.path(step).name for step in folder.steps()}
