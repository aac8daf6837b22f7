"""Training under meshtf-launch that loses processes: it ends as if it had lost none."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.fresh_process import run_fresh

pytestmark = pytest.mark.timeout(2400)  # the launcher alone waits for four minutes before ten starts

TRAIN = [
    "-m", "meshtf.bin.train", "--gin_file=digits_mlp.gin", "--gin_param=Training.checkpoint_every_steps=20",
    "--gin_param=Training.log_every=1",
]  # fmt: skip


def trained(folder: Path, arguments: Sequence[str]) -> Path:
    """The folder of a run that nothing disturbs, in one process."""
    found = run_fresh([*TRAIN, *arguments, "--model_dir=undisturbed"], folder, timeout_seconds=600)
    assert found.status == 0, found.stderr
    return folder / "undisturbed"


class Disturbed:
    """A job of meshtf-launch, of which processes are taken away."""

    def __init__(self, folder: Path, options: Sequence[str], arguments: Sequence[str], seed: int) -> None:
        self.run = folder / "disturbed"
        self._random = random.Random(seed)
        self._lost_at: list[int] = []
        launch = [sys.executable, "-m", "meshtf_programs.launching.launch", *options, "--"]
        command = [*launch, sys.executable, *TRAIN, *arguments, f"--model_dir={self.run}"]
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            self._job = subprocess.Popen(command, cwd=folder, stdout=out, stderr=err)
        self._out, self._err = folder / "out", folder / "err"

    def lose_one(self, number: signal.Signals = signal.SIGKILL) -> None:
        """One of the processes, some time after a checkpoint has come since the last loss."""
        before = self._newest()
        end = time.monotonic() + 300
        while self._newest() <= before:
            assert self._job.poll() is None, "it has ended before"
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(self._random.uniform(0, 0.2))
        victims = self._processes()
        self._lost_at.append(self._newest())
        os.kill(self._random.choice(victims), number)
        while set(victims) & set(self._processes()):
            assert time.monotonic() < end
            time.sleep(0.05)

    def finish(self) -> str:
        """What the launcher said; every start went on from the newest checkpoint that was there, or a later one."""
        assert self._job.wait(timeout=600) == 0, self._err.read_text()
        resumed = [int(step) for step in re.findall(r"^\[0\] resumed: +from step (\d+)", self._out.read_text(), re.M)]
        assert len(resumed) == len(self._lost_at)
        assert all(there <= step for there, step in zip(self._lost_at, resumed, strict=True)), (self._lost_at, resumed)
        return self._err.read_text()

    def _newest(self) -> int:
        folder = self.run / "checkpoints"
        steps = [int(path.name.removeprefix("step_")) for path in folder.glob("step_*")] if folder.exists() else []
        return max(steps, default=0)

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self._job.pid}/task/{self._job.pid}/children").read_text().split()
        return [int(pid) for pid in children if is_training(pid)]


def is_training(pid: str) -> bool:
    try:
        return b"meshtf.bin.train" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return False


def lines_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> np.ndarray:
    return np.array([line["loss"] for line in lines_of(run) if "loss" in line])


@pytest.mark.long
def test_it_goes_on_with_the_processes_that_are_left(tmp_path: Path) -> None:
    """Two processes of two cores; then one, on half the mesh; then none is left, and both start again."""
    arguments = ["--mesh_shape=rows:*;cols:2", "--gin_param=Training.num_steps=120"]
    # Whoever has not ended by then counts as lost, too: on a busy machine it takes its time.
    options = ["--processes=2", "--cores_per_process=2", "--max_restarts=2", "--elastic", "--grace_seconds=120"]
    job = Disturbed(tmp_path, options, arguments, seed=0)
    job.lose_one()
    job.lose_one()
    said = job.finish()
    assert "start 1 of 2 again in 1 s, with 1 process; training continues from its last checkpoint" in said
    assert "start 2 of 2 again in 2 s; training continues from its last checkpoint" in said
    meshes = re.findall(r"mesh \[(.*?)\]", (tmp_path / "out").read_text())
    assert meshes == ["rows:2 cols:2", "rows:1 cols:2", "rows:2 cols:2"]
    undisturbed = trained(tmp_path, ["--mesh_shape=rows:2;cols:2", *arguments[1:]])
    np.testing.assert_allclose(losses(job.run), losses(undisturbed), rtol=0, atol=1e-5)


@pytest.mark.long
def test_ten_losses_change_no_bit_on_one_mesh(tmp_path: Path, seed: int) -> None:
    """Against the same processes, since those of one add up in another order."""
    arguments = ["--mesh_shape=rows:2;cols:4", "--gin_param=Training.num_steps=1500"]
    options = ["--processes=2", "--cores_per_process=4", "--max_restarts=10"]
    job = Disturbed(tmp_path, options, arguments, seed)
    for number in [signal.SIGKILL] * 8 + [signal.SIGSTOP, signal.SIGKILL]:
        job.lose_one(number)
    job.finish()
    (tmp_path / "undisturbed").mkdir()
    undisturbed = Disturbed(tmp_path / "undisturbed", options, arguments, seed)
    undisturbed.finish()
    assert lines_of(job.run)[-1]["variables_sha256"] == lines_of(undisturbed.run)[-1]["variables_sha256"]
    np.testing.assert_array_equal(losses(job.run), losses(undisturbed.run))


@pytest.mark.long
def test_ten_losses_on_the_meshes_that_are_left(tmp_path: Path, seed: int) -> None:
    """Of four processes one after the other is lost: three do not fit, two do, one does not, so all start again."""
    arguments = ["--mesh_shape=rows:*;cols:2", "--gin_param=Training.num_steps=400"]
    options = ["--processes=4", "--cores_per_process=1", "--max_restarts=10", "--elastic", "--grace_seconds=120"]
    job = Disturbed(tmp_path, options, arguments, seed)
    for _ in range(10):
        job.lose_one()
    said = job.finish()
    assert "the mesh does not fit; starting again, with 2 processes" in said
    undisturbed = trained(tmp_path, ["--mesh_shape=rows:2;cols:2", *arguments[1:]])
    np.testing.assert_allclose(losses(job.run), losses(undisturbed), rtol=0, atol=1e-5)
