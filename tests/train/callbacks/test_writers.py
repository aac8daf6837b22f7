"""Writers for Weights & Biases and MLflow, offline, into files: a run, interrupted and resumed.

In processes of their own: both start threads, and warn of things that are not ours. They need the extra `test-long`.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.fresh_process import run_fresh

PROGRAM = """
import gin
import meshtf as mtf
from meshtf.bin import train

mtf.virtual_cpus(1)
options = [
    "--gin_file=digits_mlp.gin", "--model_dir=run", "--mesh_shape=cores:1", "--layout=",
    "--gin_param=MLPClassifier.hidden_sizes=(8,)", "--gin_param=Training.log_every=1",
    "--gin_param=Training.evaluate_every=2", "--gin_param=Training.callbacks=[@{writer}()]", {options}
]
for num_steps in (3, 5):
    assert train.main(["meshtf-train", *options, f"--gin_param=Training.num_steps={{num_steps}}"]) == 0
"""


def train_twice(folder: Path, writer: str, *options: str) -> str:
    """Three steps, and then two more; returns what was printed."""
    given = ", ".join(repr(f"--gin_param={option}") for option in options)
    program = textwrap.dedent(PROGRAM).format(writer=writer, options=given)
    ended = run_fresh(["-c", program], folder, environment={"MLFLOW_ALLOW_FILE_STORE": "true"})
    assert ended.status == 0, ended.stderr
    assert "Training continues without it" not in ended.stdout
    return ended.stdout


@pytest.mark.long
def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """Both parts are of one run of theirs, whose metrics are those of metrics.jsonl."""
    train_twice(tmp_path, "WandbWriter", "WandbWriter.mode='offline'", "WandbWriter.project='digits'")
    parts = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(parts) == 2
    assert len({part.name for part in parts}) == 1
    written = b"".join(part.read_bytes() for part in parts)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "held_out_accuracy"):
        values = [json.dumps(line[name]).encode() for line in lines if name in line]
        assert len(values) >= 3
        assert [value for value in values if value not in written] == []
    assert b"Training.batch_size" in written


@pytest.mark.long
def test_mlflow_in_files(tmp_path: Path) -> None:
    """Both parts are of one run, whose metrics are those of metrics.jsonl, and whose parameters are the bindings."""
    train_twice(tmp_path, "MlflowWriter", f"MlflowWriter.tracking_uri='file://{tmp_path}/mlflow'")
    (loss,) = (tmp_path / "mlflow").glob("*/*/metrics/loss")
    written = {int(step): float(value) for _, value, step in (line.split() for line in loss.read_text().splitlines())}
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert written == {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert (loss.parents[1] / "params" / "Training.batch_size").read_text() == "64"
    assert "status: 3\n" in (loss.parents[1] / "meta.yaml").read_text()  # finished
