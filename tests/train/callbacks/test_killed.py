"""Early stopping and the best checkpoint, in a training that is killed again and again."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from meshtf.checkpoint import CheckpointFolder
from meshtf.train.monitoring.metrics import read_metrics
from tests.fresh_process import FreshProcess, run_fresh

COMMAND = [
    *("-m", "meshtf.bin.train", "--gin_file=digits_mlp.gin", "--model_dir=.", "--mesh_shape=cores:1", "--layout="),
    "--gin_param=Training.callbacks=[@EarlyStopping(), @BestCheckpoint()]",
    "--gin_param=EarlyStopping.metric='accuracy'",
    "--gin_param=EarlyStopping.mode='max'",
    "--gin_param=Training.evaluate_every=10",
    "--gin_param=Training.checkpoint_every_steps=7",
    "--gin_param=Training.keep_checkpoints=1",
]


def result(folder: Path) -> tuple[dict[int, dict[str, Any]], list[int], Any]:
    """Metrics by step without times and speeds, the steps of the checkpoints, and what the newest remembers."""
    metrics: dict[int, dict[str, Any]] = {}
    for line in read_metrics(folder / "metrics.jsonl"):
        values = {name: value for name, value in line.items() if not name.endswith(("time", "_per_second", "_seconds"))}
        metrics.setdefault(line["step"], {}).update(values)
    checkpoints = CheckpointFolder(folder / "checkpoints")
    return metrics, checkpoints.steps(), checkpoints.open(checkpoints.steps()[-1]).state["callbacks"]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_it_ends_as_the_undisturbed_one(seed: int, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    assert run_fresh(COMMAND, whole).status == 0
    moments, status = random.Random(seed), -signal.SIGKILL
    for _ in range(5):
        process = FreshProcess(COMMAND, parts)
        after = moments.randint(1, 60)  # lines of metrics
        while process.is_running and len(read_metrics(parts / "metrics.jsonl")) < after:
            time.sleep(0.01)
        time.sleep(moments.random() / 10)
        process.kill()
        status = process.finish().status
        assert status in (0, -signal.SIGKILL)
    if status:
        assert run_fresh(COMMAND, parts).status == 0
    assert max(result(whole)[0]) < 300  # it did end early
    assert result(parts) == result(whole)
