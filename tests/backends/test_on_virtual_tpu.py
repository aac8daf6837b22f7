"""meshtf-train with --backend=tpu --virtual=8: killed, resumed, carried to virtual CPUs and from there."""

from __future__ import annotations

import dataclasses
import re
import signal
import time
from pathlib import Path

import pytest

from meshtf.train.monitoring.metrics import read_metrics
from tests.fresh_process import Finished, FreshProcess, run_fresh

TPU = ("--backend=tpu", "--virtual=8")
STEPS = 6
CONFIGURATION = f"""
include "digits_mlp.gin"
MLPClassifier.hidden_sizes = (64,)
Training.num_steps = {STEPS}
Training.log_every = 1
Training.checkpoint_every_steps = 2
Training.checkpoint_every_minutes = None
Training.evaluate_every = None
Training.check_gradients = True
"""
MESHES = [
    ("rows:2;cols:4", "batch:rows;hidden:cols"),
    ("x:2;y:2;z:2", "batch:x;pixels:y;hidden:z"),
    ("all:8", "batch:all"),
]


@dataclasses.dataclass(frozen=True)
class Runs:
    """Runs of one configuration, each in a folder."""

    path: Path
    mesh: tuple[str, str]

    def start(self, folder: str, *flags: str) -> FreshProcess:
        mesh_shape, layout = self.mesh
        mesh = [f"--mesh_shape={mesh_shape}", f"--layout={layout}"]
        command = ["-m", "meshtf.bin.train", "--gin_file=run.gin", f"--model_dir={folder}", *mesh, *flags]
        return FreshProcess(command, self.path)

    def train(self, folder: str, *flags: str) -> Finished:
        finished = self.start(folder, *flags).finish()
        assert finished.status == 0, finished.stderr
        return finished

    def kill(self, folder: str, step: int, *flags: str) -> None:
        """Once it has a checkpoint of a step."""
        process = self.start(folder, *flags)
        while process.is_running and not list((self.path / folder).glob(f"checkpoints/step_{step:08d}")):
            time.sleep(0.01)
        process.kill()
        finished = process.finish()
        assert finished.status in (0, -signal.SIGKILL), finished.stderr

    def losses(self, folder: str) -> dict[int, float]:
        lines = read_metrics(self.path / folder / "metrics.jsonl")
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def digest(self, folder: str) -> str:
        return read_metrics(self.path / folder / "metrics.jsonl")[-1]["variables_sha256"]

    def evaluated(self, folder: str, *flags: str) -> float:
        finished = run_fresh(["-m", "meshtf.bin.eval", f"--model_dir={folder}", *flags], self.path)
        assert finished.status == 0, finished.stderr
        loss = re.search(r"held out: +loss ([0-9.e-]+)", finished.stdout)
        assert loss is not None, finished.stdout
        return float(loss[1].rstrip("."))


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: mesh[0])
def test_trained_killed_resumed_and_evaluated(mesh: tuple[str, str], tmp_path: Path) -> None:
    """Resumed runs end in the same bits; on virtual CPUs losses are the same to rounding, and checkpoints go there."""
    (tmp_path / "run.gin").write_text(CONFIGURATION)
    runs = Runs(tmp_path, mesh)
    runs.train("whole", *TPU)
    runs.kill("parts", 2, *TPU)
    runs.train("parts", *TPU)
    assert runs.losses("parts") == runs.losses("whole")
    assert runs.digest("parts") == runs.digest("whole")
    runs.kill("both", 4)
    assert "resumed:       from step" in runs.train("both", *TPU).stdout
    assert runs.losses("both") == pytest.approx(runs.losses("whole"), rel=1e-5)
    trained = read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]["held_out_loss"]
    assert runs.evaluated("whole", "--mesh_shape=one:1", "--layout=") == pytest.approx(trained, rel=1e-3)  # of 4 digits
