"""A run in this process: its clock, its log, and the end at the target."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.optimize import PiecewiseSchedule, SgdOptimizer
from meshtf.train import Trainer, Training
from meshtf.train.callback import Callback, CallbackError, Run
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ArrayTask
from meshtf.train.monitoring.progress import StepReport
from meshtf.train.quality import QualityTarget
from meshtf.train.quality.log_check import checker_name, log_problems
from meshtf.train.quality.results import draw_results, result_line, results_table
from meshtf.train.quality.run_log import TOKEN
from meshtf.train.quality.timed_run import TimedRun, timed_run
from meshtf.train.runs.signals import StopRequest
from meshtf.train.trainer import mesh_of

Make = Callable[..., Training]


class ReadTask(ArrayTask):
    """Notes the events of the log when its examples are asked for."""

    log: Path
    read_after: list[str]

    def training_rows(self, *arguments: Any, **named: Any) -> Any:
        self.read_after.extend(key for key in keys(self.log) if key.startswith(("init", "run")))
        return super().training_rows(*arguments, **named)


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text().splitlines()
    assert all(line.startswith(TOKEN) for line in text)
    return [json.loads(line.removeprefix(TOKEN)) for line in text]


def keys(path: Path) -> list[str]:
    return [line["key"] for line in lines(path)]


def timed(make: Make, folder: Path, target: QualityTarget, *, seed: int = 3) -> TimedRun:
    folder.mkdir()
    read_after: list[str] = []

    def configured() -> Training:
        own = make(num_steps=6, evaluate_every=2)
        task = own.task
        assert isinstance(task, ArrayTask)
        noted = ReadTask(task.name, task.shapes, task.train, task.held_out)
        object.__setattr__(noted, "log", folder / "result.txt")
        object.__setattr__(noted, "read_after", read_after)
        return make(num_steps=6, evaluate_every=2, task=noted)

    mesh_impl = mesh_of(configured())
    found = timed_run(configured, mesh_impl, target, seed=seed, folder=folder, stop=StopRequest())
    assert found is not None
    assert read_after == ["init_start", "init_stop", "run_start"]  # the clock runs when examples are read
    return found


def test_the_clock_stops_at_the_target_and_the_log_keeps_the_rules(tiny_training: Make, tmp_path: Path) -> None:
    # Eight examples a step of 40, so an evaluation after every 0.4 epochs. Any loss is good enough.
    target = QualityTarget("tiny", "loss", 1e9, "min")
    run = timed(tiny_training, tmp_path / "run", target)
    assert run.is_reached
    assert (run.seed, run.steps, run.epochs) == (3, 2, 0.4)
    assert len(run.curve) == 1
    assert 0 < run.evaluation_seconds < run.seconds == run.curve[0][0]
    log = tmp_path / "run" / "result.txt"
    events = lines(log)
    assert [event["time_ms"] for event in events] == sorted(event["time_ms"] for event in events)
    by_key = {event["key"]: event for event in events}
    assert by_key["train_samples"]["value"] == 40
    assert by_key["eval_samples"]["value"] == 11
    assert by_key["eval_accuracy"]["metadata"] == {"epoch_num": 0.4, "samples_count": 16}
    assert by_key["run_stop"]["metadata"] == {"status": "success"}
    between = by_key["run_stop"]["time_ms"] - by_key["run_start"]["time_ms"]
    assert abs(between - 1e3 * run.seconds) <= 1000
    if checker_name() is None:
        pytest.skip("mlperf-logging is not installed")
    assert log_problems(log, target) == []
    assert any("eval_accuracy" in problem for problem in log_problems(log, QualityTarget("tiny", "loss", -1.0, "min")))
    assert any("submission_benchmark" in p for p in log_problems(log, QualityTarget("other", "loss", 1e9, "min")))
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "run_start" not in line))
    assert any("run_start" in problem for problem in log_problems(log, target))


def test_a_run_that_misses_its_target_is_told(tiny_training: Make, tmp_path: Path) -> None:
    target = QualityTarget("tiny", "loss", -1.0, "min")
    run = timed(tiny_training, tmp_path / "run", target)
    assert (run.is_reached, run.steps, len(run.curve)) == (False, 6, 3)
    assert lines(tmp_path / "run" / "result.txt")[-1]["metadata"] == {"status": "aborted"}
    assert results_table([run], target).row_count == 1
    assert draw_results([run], target, tmp_path / "quality.png") is None
    assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")
    assert result_line([run, run, run]) == (
        "no result by the rules: 3 of 3 runs missed the target, and at most one may"
    )
    assert "; this one missed the target in" in result_line([run])


@pytest.mark.parametrize("diverges_at", [0, 4])
def test_a_run_that_diverges_misses_its_target(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], diverges_at: int
) -> None:
    """The other runs of the command, and their table, are not lost with it."""

    def diverging(**changes: Any) -> Training:
        rate = PiecewiseSchedule(boundaries=[diverges_at], pieces=[0.01, 1e30]) if diverges_at else 1e30
        return tiny_training(optimizer=SgdOptimizer(rate), **changes)

    target = QualityTarget("tiny", "loss", -1.0, "min")
    run = timed(diverging, tmp_path / "run", target)
    assert not run.is_reached
    assert run.steps < 6
    assert len(run.curve) == diverges_at // 2
    assert math.isnan(run.quality) == (not run.curve)
    told = capsys.readouterr().err
    assert "the loss: a NaN or an infinity in" in told
    assert told.endswith("\nThe run with seed 3 has diverged, so it missed the target.\n")
    assert "Start again" not in told
    assert lines(tmp_path / "run" / "result.txt")[-1]["metadata"] == {"status": "aborted"}
    assert results_table([run], target).row_count == 1
    assert draw_results([run], target, tmp_path / "quality.png") is None


def test_errors_do_not_promise_that_a_timed_run_is_resumed(tiny_training: Make, tmp_path: Path) -> None:
    """Its folder is not empty any more, so the same command refuses it."""

    class Fails(Callback):
        def on_step(self, run: Run, report: StepReport) -> None:
            raise RuntimeError("too warm")

    def failing(**changes: Any) -> Training:
        return tiny_training(callbacks=[Fails()], **changes)

    with pytest.raises(CallbackError, match="too warm") as error:
        timed(failing, tmp_path / "run", QualityTarget("tiny", "loss", 0.0))
    assert str(error.value).endswith("A timed run is not resumed. Start again in another folder (--out).")
    assert "The same command" not in str(error.value)


def test_a_metric_that_evaluations_do_not_have_is_told_before_the_run(tiny_training: Make, tmp_path: Path) -> None:
    message = r'metric is "los", which an evaluation does not have. It has loss, absolute; did you mean "loss"\?'
    with pytest.raises(ConfigurationError, match=message):
        timed(tiny_training, tmp_path / "run", QualityTarget("tiny", "los", 0.0))
    assert "run_start" not in keys(tmp_path / "run" / "result.txt")


def test_compilation_leaves_no_trace_in_the_weights(tiny_training: Make, tmp_path: Path) -> None:
    """The quality is that of a training that nothing ran before."""
    found = timed(tiny_training, tmp_path / "run", QualityTarget("tiny", "loss", -1.0, "min"), seed=0)
    training = tiny_training(num_steps=6)
    trainer = Trainer(training)
    batches = trainer.batches()
    for _ in range(6):
        trainer.train_step(**next(batches))
    evaluation = trainer.evaluate()
    assert evaluation is not None
    assert np.float64(evaluation.means["loss"]) == found.quality
