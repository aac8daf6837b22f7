"""Training on the virtual TPU, which starts steps ahead: what is reported, saved and resumed, and what goes wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, IndexRangeError, NonFiniteError, UsageError
from meshtf.train import Callback, Run, RunFolder, StepReport, Trainer, Training, TrainingRun
from meshtf.train.batches.steps_ahead import StepsAhead
from meshtf.train.monitoring.metrics import digest_of, read_metrics
from meshtf.train.runs.resuming import resumed_start
from meshtf.train.runs.signals import StopRequest

Make = Callable[..., Training]


@dataclasses.dataclass
class Watch(Callback):
    """Notes which steps it is told of; at one it asks for a checkpoint, at another it asks to stop, or fails."""

    save_at: int | None = None
    stop_at: int | None = None
    fail_at: int | None = None
    told: list[int] = dataclasses.field(default_factory=list)

    def on_step(self, run: Run, report: StepReport) -> None:
        self.told.append(report.step)
        if report.step == self.save_at:
            run.save_checkpoint()
        if report.step == self.stop_at:
            run.stop("as it was told")
        if report.step == self.fail_at:
            raise ValueError("a callback's own fault")


def trainer_of(training: Training, *, on_tpu: bool = True) -> Trainer:
    kind = mtf.TpuMeshImpl if on_tpu else mtf.SpmdMeshImpl
    return Trainer(training, kind(training.mesh_shape, training.layout, options=training.mesh_options))


def trained(trainer: Trainer, folder: Path, watch: Watch | None = None) -> Trainer:
    """Trains from the newest checkpoint in a folder on."""
    run_folder = RunFolder.made(folder)
    start = resumed_start(trainer, run_folder)
    TrainingRun(trainer, run_folder, start, StopRequest(), [] if watch is None else [watch]).run()
    return trainer


def losses(folder: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line}


def test_a_run_ends_alike_in_parts_and_after_a_callback_that_fails(tiny_training: Make, tmp_path: Path) -> None:
    training = tiny_training(mesh_shape="rows:2", layout="batch:rows", evaluate_every=4, num_steps=12)
    watch = Watch()
    whole = trained(trainer_of(training), tmp_path / "whole", watch)
    assert watch.told == list(range(1, 13))

    failing, again = Watch(save_at=1, fail_at=5), trainer_of(training)
    with pytest.raises(Exception, match="resumes from the checkpoint of step 7"):  # two were under way when it failed
        trained(again, tmp_path / "parts", failing)
    assert failing.told == [1, 2, 3, 4, 5]
    assert RunFolder(tmp_path / "parts").checkpoints().steps() == [3, 7]  # and two when it asked for the first

    asked = Watch(stop_at=9)
    trained(again, tmp_path / "parts", asked)
    assert asked.told == [8, 9, 10, 11]  # two were under way when it asked
    assert RunFolder(tmp_path / "parts").checkpoints().steps()[-1] == 11
    trained(again, tmp_path / "parts")
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    assert digest_of(again.variables) == digest_of(whole.variables)


@pytest.mark.long
def test_a_run_goes_on_on_virtual_cpus(tiny_training: Make, tmp_path: Path) -> None:
    training = tiny_training(mesh_shape="rows:2;cols:2", layout="batch:rows;hidden:cols")
    trained(trainer_of(training, on_tpu=False), tmp_path / "cpus")
    trained(trainer_of(dataclasses.replace(training, num_steps=5)), tmp_path / "both")
    trained(trainer_of(training, on_tpu=False), tmp_path / "both")
    assert losses(tmp_path / "both") == pytest.approx(losses(tmp_path / "cpus"), rel=1e-5)


@pytest.mark.long
def test_a_step_that_fails_is_named_and_those_after_it_do_nothing(tiny_training: Make, tmp_path: Path) -> None:
    inner = tiny_training().model

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            taken = mtf.get_variable(features["x"].mesh, "taken", [], initializer=mtf.zeros, trainable=False)
            if is_training:
                mtf.assign_add(taken, mtf.ones_like(taken))
            loss, weights = inner.metrics(features, is_training)["loss"]  # type: ignore[attr-defined]
            return {"loss": (loss + 0.0 * mtf.sqrt(1.5 - taken, name="rooted"), weights)}

    with pytest.raises(NonFiniteError) as caught:
        trained(trainer_of(tiny_training(model=Model())), tmp_path)
    assert str(caught.value).startswith("step 3: the loss: a NaN or an infinity in ")
    assert "The first NaN is in rooted [] float32, at " in str(caught.value)
    assert list(losses(tmp_path)) == [1, 2]


def test_indices_out_of_range_are_named() -> None:
    """By a second program on the virtual TPU, which assigns nothing."""
    ids, vocabulary = mtf.convert_to_shape("batch:4 length:3"), mtf.Dimension("vocabulary", 10)

    def step(ids: mtf.Tensor) -> mtf.Tensor:
        seen = mtf.get_variable(ids.mesh, "seen", [], initializer=mtf.zeros)
        mtf.assign_add(seen, mtf.ones_like(seen))
        return mtf.reduce_sum(mtf.one_hot(mtf.check_indices(2 * ids, vocabulary), vocabulary))

    program = mtf.function(step, mtf.TpuMeshImpl("rows:2;cols:2", "batch:rows"), {"ids": mtf.TensorSpec(ids, tf.int32)})
    good = np.zeros([4, 3], np.int32)
    bad = good.copy()
    bad[3, 1] = 6
    started = [program.start(ids=x) for x in (good, bad, good)]
    assert float(started[0]()) == 12
    for results in started[1:]:
        with pytest.raises(IndexRangeError):
            results()
    with pytest.raises(IndexRangeError, match=r"an index outside of 0 to 9 in .*: 12 at batch 3, length 1"):
        program(ids=bad)
    assert program.variables["seen"] == 1
    with pytest.raises(UsageError, match=r'program "step" was started inside a tf.function'):
        tf.function(lambda: program.start(ids=good), autograph=False)()


def test_a_batch_that_is_refused_is_named_by_its_own_step(tiny_training: Make, tmp_path: Path) -> None:
    """Those before it have been reported by then."""
    trainer = Trainer(tiny_training(), mtf.TpuMeshImpl("rows:2", "batch:rows"))
    batches = trainer.batches()

    class Batches:
        position = batches.position

        def __next__(self) -> dict[str, np.ndarray]:
            batch = dict(next(batches))
            return batch if not ahead else {**batch, "x": batch["x"][:2]}

    ahead = StepsAhead(trainer.train_step, Batches())
    ahead.start(3)
    assert len(ahead) == 2
    assert np.isfinite(ahead.oldest().results()["loss"])
    with pytest.raises(FeedError, match=r'input "x" must be .* and has shape \[2, 6, 4\]'):
        ahead.oldest().results()
