"""A training run in this process: stopped and resumed, on a schedule, and when something goes wrong."""

from __future__ import annotations

import dataclasses
import re
import shutil
import signal
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import meshtf as mtf
from meshtf.errors import CheckpointError, CollectiveError, NonFiniteError, SaveError
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import RunFolder, Start, Trainer, Training, TrainingRun
from meshtf.train._metric_sums import MetricError
from meshtf.train.callback import Callback
from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.loss_curve import MISSING_MATPLOTLIB
from meshtf.train.monitoring.metrics import digest_of, read_metrics
from meshtf.train.monitoring.non_finite import first_non_finite_variable, where_it_began
from meshtf.train.runs.resuming import changed_bindings, resumed_start
from meshtf.train.runs.signals import StopRequest

Make = Callable[..., Training]
TERMS = (2 * (4 + 8 + FUNCTION_TERMS), 8 * 6, 4 * FUNCTION_TERMS)
"""Roundings of one step of the tiny model: two layers, there and back, a sum over the batch's elements, the update."""


class StopAfter(StopRequest):
    """Asks to stop once a training has taken so many steps."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self.step = step
        self.run: TrainingRun | None = None

    def __bool__(self) -> bool:
        if self.run is not None and self.run.step == self.step:
            self.signal = signal.SIGTERM
        return super().__bool__()


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that has ended."""

    trainer: Trainer
    folder: RunFolder
    start: Start
    evaluation: Evaluation | None

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines if "loss" in line}

    @property
    def held_out(self) -> dict[int, float]:
        return {line["step"]: line["held_out_loss"] for line in self.lines if "held_out_loss" in line}

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder.metrics)


def run(training: Training, path: Path, stop_after: int | None = None, trainer: Trainer | None = None) -> Run:
    """Trains as the program does: from the newest checkpoint in the folder on.

    `trainer`: the compiled programs of an earlier run, for tests of what does not depend on them. By default they are
    made anew, as in another process.
    """
    path.mkdir(exist_ok=True)
    trainer, folder, stop = trainer or Trainer(training), RunFolder(path), StopAfter(stop_after)
    start = resumed_start(trainer, folder)
    stop.run = TrainingRun(trainer, folder, start, stop, training.callbacks)
    return Run(trainer, folder, start, stop.run.run())


def test_a_run_stopped_and_resumed_is_the_uninterrupted_run(tiny_training: Make, tmp_path: Path) -> None:
    """Bit for bit, with dropout, an evaluation that was due when it was stopped, and lines that a kill left behind."""
    training = tiny_training(evaluate_every=3)
    whole = run(training, tmp_path / "whole")
    stopped = run(training, tmp_path / "parts", stop_after=3)
    assert stopped.evaluation is None
    assert stopped.folder.checkpoints().steps() == [3]
    with stopped.folder.metrics.open("a") as file:
        file.write('{"step": 4, "loss": 123}\n{"step": 5, "lo')
    resumed = run(training, tmp_path / "parts")
    assert resumed.start.step == 3
    assert resumed.losses == whole.losses
    assert resumed.held_out == whole.held_out
    assert list(whole.held_out) == [3, 6, 8]
    assert digest_of(resumed.trainer.variables) == digest_of(whole.trainer.variables)
    assert [line["step"] for line in resumed.lines if "loss" in line] == list(range(1, 9))
    assert resumed.folder.loss_curve.read_bytes().startswith(b"\x89PNG")


def test_a_run_resumes_on_another_mesh_and_layout(tiny_training: Make, tmp_path: Path) -> None:
    first = run(tiny_training(), tmp_path / "whole", stop_after=4)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    whole = run(tiny_training(), tmp_path / "whole", trainer=first.trainer)
    other = tiny_training(mesh_shape="rows:2;cols:2", layout="hidden:cols", parameter_layout="hidden:cols+rows")
    resumed = run(other, tmp_path / "parts")
    assert resumed.losses.keys() == whole.losses.keys()
    for step, loss in whole.losses.items():
        assert_close(resumed.losses[step], loss, terms=TERMS, steps=step, dtype="float32")


def test_a_finished_run_is_only_evaluated(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run(tiny_training(num_steps=2), tmp_path)
    capsys.readouterr()
    again = run(tiny_training(num_steps=2), tmp_path)
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if "held out" not in line] == [], told
    assert (again.start.step, again.evaluation, again.lines) == (2, first.evaluation, first.lines)


def test_checkpoints_by_steps_and_the_last_are_kept(tiny_training: Make, tmp_path: Path) -> None:
    ended = run(tiny_training(checkpoint_every_steps=2, keep_checkpoints=2, num_steps=7), tmp_path)
    assert ended.folder.checkpoints().steps() == [6, 7]


def test_checkpoints_by_time_and_what_is_missing_is_told_at_the_end(
    tiny_training: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of half a minute, on a clock of the test's: two minutes are four steps, and not a second more."""
    clock = types.SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr("meshtf.train.loop.time", types.SimpleNamespace(monotonic=lambda: clock.seconds))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as if it were not installed

    class HalfAMinute(Callback):
        def on_step(self, run: Any, report: Any) -> None:
            clock.seconds += 30.0

    changes = {"checkpoint_every_minutes": 2, "evaluate_every": 4, "callbacks": [HalfAMinute()], "num_steps": 10}
    ended = run(tiny_training(**changes), tmp_path)
    assert ended.folder.checkpoints().steps() == [4, 8, 10]
    told = capsys.readouterr().out
    assert told.count(MISSING_MATPLOTLIB) == 1
    assert told.index("step 8: held out") < told.index(MISSING_MATPLOTLIB)


def test_another_seed_batch_size_or_task_is_another_run(tiny_training: Make, tmp_path: Path) -> None:
    run(tiny_training(num_steps=1), tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        run(tiny_training(seed=1, batch_size=4), tmp_path)
    message = str(caught.value)
    assert f"{tmp_path} holds another run, at step 1:" in message
    assert "Training.seed was 0 and is 1" in message
    assert "Training.batch_size was 8 and is 4" in message


def test_a_checkpoint_of_another_model_names_what_differs(tiny_training: Make, tmp_path: Path) -> None:
    run(tiny_training(num_steps=1), tmp_path)
    wider = dataclasses.replace(tiny_training().model, hidden=16)  # type: ignore[type-var]
    with pytest.raises(CheckpointError, match="hidden/kernel"):
        run(tiny_training(model=wider), tmp_path)


def test_changed_bindings_are_told() -> None:
    before = "import a\n\n# Parameters for A:\nA.rate = 0.1\nA.sizes = \\\n    (1,\n     2)\n\n# For B:\nA.gone = 1\n"
    now = "import a\nA.rate = 0.2\nA.sizes = (1, 2)\nB.new = 'x'\n"
    assert changed_bindings(before, now) == [
        "A.gone: 1 -> (not there)",
        "A.rate: 0.1 -> 0.2",
        "B.new: (not there) -> 'x'",
    ]


def fails_from(model: Any, step: int) -> Any:
    """The model, with a loss that is the square root of a negative number in so many steps and all later ones."""

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            metrics = model.metrics(features, is_training)
            taken = mtf.get_variable(features["x"].mesh, "taken", [], initializer=mtf.zeros, trainable=False)
            if is_training:
                mtf.assign_add(taken, mtf.ones_like(taken))
            loss, weights = metrics["loss"]
            rooted = mtf.sqrt(mtf.relu(step - 1.5 - taken) + loss * 0.0 + (step - 1.5 - taken), name="rooted")
            return {"loss": (loss + rooted * 0.0, weights)}

    return Model()


def test_a_nan_stops_training_and_says_where_it_began(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fails_from(tiny_training().model, step=3)
    with pytest.raises(NonFiniteError) as caught:
        run(tiny_training(model=model, checkpoint_every_steps=1), tmp_path)
    message = str(caught.value)
    assert re.search(r"^step 3: the loss: .*; looking for where it began$", capsys.readouterr().out, re.MULTILINE)
    assert message.startswith("step 3: the loss: a NaN or an infinity in ")
    assert "Training has stopped before the update." in message
    assert "The first NaN is in rooted [batch:8 length:6] float32, at " in message
    assert "test_loop.py:" in message
    assert "infinity comes before" not in message
    assert "Nothing more was saved. The same command resumes from the checkpoint of step 2, " in message
    assert RunFolder(tmp_path).checkpoints().steps() == [1, 2]
    assert [line["step"] for line in read_metrics(RunFolder(tmp_path).metrics)] == [1, 2]


def test_a_variable_that_has_a_nan_points_to_the_update_before(tiny_training: Make) -> None:
    training = tiny_training()
    trainer, batch = Trainer(training), next(training.task.training_batches(8, 0))
    trainer.train_step.initialize()
    assert where_it_began(training, trainer.mesh_impl, trainer.variables, batch) is None
    trainer.variables["out/kernel"] = np.full([8, 1], np.nan)
    assert first_non_finite_variable(trainer.variables) == "out/kernel"
    x = np.array(batch["x"])
    x[0, 0, 0] = np.inf  # alone: sums of several may be NaN
    batch = {**batch, "x": x}
    message = where_it_began(training, trainer.mesh_impl, trainer.variables, batch)
    assert message is not None
    assert message.startswith("The first NaN is in variable out/kernel [hidden:8 out:1] float32, at ")
    assert 'An infinity comes before it, in the feature "x" [batch:8 length:6 d_model:4]' in message
    assert "An earlier update made it so. With Training.check_gradients = True" in message


def test_a_variable_that_is_not_finite_is_not_saved(tiny_training: Make, tmp_path: Path) -> None:
    """The gradient is, and the loss is not: the update that it makes is seen before the checkpoint."""

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            w = mtf.get_variable(features["x"].mesh, "w", [], initializer=mtf.ones)
            return {"loss": mtf.sqrt(mtf.reduce_sum(features["x"]) * w * 0.0)}

    with pytest.raises(NonFiniteError) as caught:
        run(tiny_training(model=Model(), num_steps=1), tmp_path)
    assert 'step 1: variable "w' in str(caught.value)
    assert "Training.check_gradients = True" in str(caught.value)
    assert RunFolder(tmp_path).checkpoints().steps() == []


def test_nothing_of_a_step_with_a_failed_collective_is_saved(
    tiny_training: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = tiny_training(checkpoint_every_steps=2)
    trainer, folder = Trainer(training), RunFolder(tmp_path)
    training_run = TrainingRun(trainer, folder, Start(), StopRequest(), [])
    step, calls = trainer.train_step, iter(range(1, 9))

    class FailsInTheFourth:
        def start(self, **features: Any) -> Any:
            if next(calls) == 4:
                raise CollectiveError("an all_reduce over rows timed out")
            return step.start(**features)

        def __getattr__(self, name: str) -> Any:
            return getattr(step, name)

    monkeypatch.setattr(trainer, "train_step", FailsInTheFourth())
    with pytest.raises(CollectiveError) as caught:
        training_run.run()
    assert str(caught.value).startswith("step 4: an all_reduce over rows timed out\nNothing more was saved.")
    assert "resumes from the checkpoint of step 2, " in str(caught.value)
    assert folder.checkpoints().steps() == [2]


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tiny_training: Make, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").symlink_to("/proc")  # where no folder can be made
    with pytest.raises(SaveError, match="the checkpoint of step 1 cannot be written"):
        run(tiny_training(num_steps=1), tmp_path)


def test_vectors_of_the_model_are_shown_and_written(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model:
        """Whose vectors are [0, 1, 2], and a row of as many threes."""

        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            mesh, places = features["x"].mesh, mtf.Dimension("places", 3)
            w = mtf.get_variable(mesh, "w", [], initializer=mtf.ones)
            numbers = mtf.range(mesh, places, tf.float32)
            rows = mtf.stack([numbers, mtf.zeros_like(numbers) + 3.0], "layers")
            return {"loss": mtf.square(features["x"] * w), "experts/load": (rows, mtf.ones_like(rows))}

    trainer, folder = Trainer(tiny_training(model=Model(), num_steps=2)), RunFolder(tmp_path)
    TrainingRun(trainer, folder, Start(), StopRequest()).run()
    rows = [[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]
    lines = read_metrics(folder.metrics)
    assert [line["experts/load"] for line in lines[:2]] == [rows, rows]
    assert [line["held_out_experts/load"] for line in lines[2:] if "held_out_loss" in line] == [rows]
    assert all("  load 0..3  " in line for line in capsys.readouterr().out.splitlines() if line.startswith("step"))
    written = EventAccumulator(str(folder.tensorboard)).Reload()
    names = ["experts/load/layer_000", "experts/load/layer_001"]
    histograms = [tag for tag in written.Tags()["tensors"] if "load" in tag]
    assert histograms == [*names, *(f"held_out_{name}" for name in names)]
    assert [event.step for event in written.Tensors(names[0])] == [1, 2]


def test_a_batch_of_which_nothing_counts_is_told_of_once(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            w = mtf.get_variable(features["x"].mesh, "w", [], initializer=mtf.ones)
            return {"loss": (features["targets"] * w, features["targets_weights"] * 0.0)}

    ended = run(tiny_training(model=Model(), num_steps=3), tmp_path)
    assert capsys.readouterr().out.count("step 1: every weight that the model gives is 0 in this batch. Its loss") == 1
    assert ended.evaluation is not None
    with pytest.raises(MetricError, match="the loss has no mean on 11 held-out examples"):
        ended.evaluation.check()
