"""What TensorBoard shows of a run."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ShownEvents

from meshtf.train import Evaluation, RunFolder, StepReport
from meshtf.train.callback import Outcome
from meshtf.train.callbacks.tensorboard import MISSING_TENSORBOARD, TensorBoard
from meshtf.train.monitoring.progress import Speed

COMPILING = Speed(1.0, 1.0, "examples", is_compilation=True)


@dataclasses.dataclass
class WrittenRun:
    """As much of a run as the callback looks at."""

    folder: RunFolder
    first_step: int = 0
    step: int = 0


def write(path: Path, first_step: int, *reports: StepReport, report: str = "text") -> None:
    run: Any = WrittenRun(RunFolder(path), first_step)
    run.folder.report.write_text(report)
    board = TensorBoard()
    board.on_start(run, {})
    for step in reports:
        board.on_step(run, step)
    board.on_end(run, Outcome.FINISHED)


def test_without_tensorboard_a_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    write(tmp_path, 0, StepReport(1, 1.0, COMPILING, vectors={"load": np.ones([2, 3])}))
    assert capsys.readouterr().out == MISSING_TENSORBOARD + "\n"
    assert not (tmp_path / "tensorboard").exists()


def test_vectors_are_histograms_one_of_each_layer_and_means_are_held_out(tmp_path: Path) -> None:
    vectors = {"load": np.float32([[0.25, 0.75], [0.5, 0.5]]), "of_all": np.float32([1, 2, 2])}
    run: Any = WrittenRun(RunFolder(tmp_path), step=7)
    board = TensorBoard()
    board.on_start(run, {})
    board.on_step(run, StepReport(6, 1.0, COMPILING, is_logged=False))
    board.on_evaluation(run, Evaluation(9, {"loss": 0.5}, vectors))
    written = EventAccumulator(str(run.folder.tensorboard)).Reload()
    names = ["load/layer_000", "load/layer_001", "of_all"]
    assert written.Tags()["tensors"] == ["held_out_loss", *(f"held_out_{name}" for name in names)]
    (event,) = written.Tensors("held_out_of_all")
    buckets = tf.make_ndarray(event.tensor_proto)  # [bucket, (left, right, count)]
    assert (event.step, buckets[0, 0], buckets[-1, 1], buckets[:, 2].sum()) == (7, 1.0, 2.0, 3)
    assert buckets[-1, 2] == 2


def test_steps_that_are_taken_again_are_shown_once(tmp_path: Path) -> None:
    """A run of five steps, killed; resumed from step 3, and from there again. Read as TensorBoard itself reads it."""
    folder = RunFolder(tmp_path).tensorboard
    for run, (last_step, end) in enumerate([(0, 5), (3, 7), (3, 6)]):
        reports = [
            StepReport(step, 10.0 * run + step, COMPILING, vectors={"load": np.float32([run, step])})
            for step in range(last_step + 1, end + 1)
        ]
        write(tmp_path, last_step, *reports, report=str(run))
        for path in folder.glob("events.*"):  # files are read in the order of the seconds in their names
            path.rename(folder / f"{run}.{path.name}")
    written = ShownEvents(str(folder)).Reload()
    losses = [(event.step, float(tf.make_ndarray(event.tensor_proto))) for event in written.Tensors("loss")]
    assert losses == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 24.0), (5, 25.0), (6, 26.0)]
    assert [event.step for event in written.Tensors("load")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in written.Tensors("report")] == [1, 4]
