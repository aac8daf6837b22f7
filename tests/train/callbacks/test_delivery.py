"""Who is told of what, and what comes of a callback that fails."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.train import (
    Callback,
    Evaluation,
    Run,
    RunFolder,
    Start,
    StepReport,
    Trainer,
    Training,
    TrainingRun,
)
from meshtf.train.callback import CallbackError, Outcome
from meshtf.train.runs.signals import StopRequest
from tests.train.test_loop import run

Make = Callable[..., Training]


class Recorder(Callback):
    """Writes every event down, and counts steps over all runs."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.count = 0

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        self.count = state.get("count", 0)
        self.events.append(("start", run.first_step, dict(state)))

    def on_step(self, run: Run, report: StepReport) -> None:
        self.count += 1
        self.events.append(("step", report.step))

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self.events.append(("evaluation", run.step))

    def on_checkpoint(self, run: Run, checkpoint: Path) -> None:
        assert (checkpoint / "manifest.json").exists()
        self.events.append(("checkpoint", checkpoint.name))

    def on_end(self, run: Run, outcome: Outcome) -> None:
        self.events.append(("end", outcome))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}


@pytest.fixture(scope="module")
def trainer(tiny_training: Make) -> Trainer:
    """Of three steps, and an evaluation after two. Runs of it go on with its weights, whatever these are by then."""
    return Trainer(tiny_training(num_steps=3, evaluate_every=2))


def test_events_of_a_run_that_is_stopped_and_resumed(trainer: Trainer, tmp_path: Path) -> None:
    """Two of a kind keep states of their own. An evaluation that is due where a run is stopped comes with the next."""
    recorder = Recorder()
    training = dataclasses.replace(trainer.training, callbacks=[Recorder(), recorder])
    run(training, tmp_path, 2, trainer)
    assert recorder.events == [
        ("start", 0, {}),
        ("step", 1),
        ("step", 2),
        ("checkpoint", "step_00000002"),
        ("end", Outcome.INTERRUPTED),
    ]
    recorder.events.clear()
    run(training, tmp_path, trainer=trainer)
    assert recorder.events == [
        ("start", 2, {"count": 2}),
        ("evaluation", 2),
        ("step", 3),
        ("checkpoint", "step_00000003"),
        ("evaluation", 3),
        ("end", Outcome.FINISHED),
    ]
    state = RunFolder(tmp_path).checkpoints().open(3).state["callbacks"]
    assert state == {"states": {"Recorder": {"count": 3}, "Recorder/2": {"count": 3}}, "evaluated_step": 2}


class Watcher(Recorder):
    is_observer = True


def test_after_a_kill_who_decides_is_told_again_of_an_evaluation_and_who_observes_is_not(
    tiny_training: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An evaluation was due where the run was stopped; the next made it, and was killed before its first checkpoint."""
    training = tiny_training(num_steps=4, evaluate_every=2)
    trainer = run(training, tmp_path, stop_after=2).trainer
    for is_first, callbacks in [
        (True, [Recorder(), Watcher()]),
        (False, [Recorder(), Watcher()]),
        (False, [Watcher()]),
    ]:
        capsys.readouterr()
        resumed = run(dataclasses.replace(training, callbacks=callbacks), tmp_path, 3, trainer)
        shutil.rmtree(resumed.folder.checkpoints().place(3))
        told = [callback for callback in callbacks if ("evaluation", 2) in callback.events]
        assert told == [callback for callback in callbacks if is_first or not callback.is_observer]
        assert ("step 2: held out" in capsys.readouterr().out) == bool(told)
    assert list(resumed.held_out) == [2]


class Fails(Callback):
    """Fails in one event, from a step on."""

    def __init__(self, event: str, step: int = 2) -> None:
        self._event, self._step = event, step

    def _fail(self, event: str, step: int) -> None:
        if event == self._event and step >= self._step:
            raise KeyError("nothing")

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        self._fail("on_start", run.step)

    def on_step(self, run: Run, report: StepReport) -> None:
        self._fail("on_step", run.step)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self._fail("on_evaluation", run.step)

    def on_checkpoint(self, run: Run, checkpoint: Path) -> None:
        self._fail("on_checkpoint", run.step)

    def on_end(self, run: Run, outcome: Outcome) -> None:
        self._fail("on_end", run.step)


class Watches(Fails):
    is_observer = True


class HasNoState(Callback):
    def state_dict(self) -> dict[str, Any]:
        return {"run": object()}


@pytest.mark.parametrize(
    ("callback", "event", "step", "saved"),
    [
        (Fails("on_start", 0), "on_start", 0, []),
        pytest.param(Fails("on_step"), "on_step", 2, [2], marks=pytest.mark.long),
        (Fails("on_evaluation"), "on_evaluation", 2, [2]),
        pytest.param(Fails("on_checkpoint"), "on_checkpoint", 3, [3], marks=pytest.mark.long),
        (Fails("on_end"), "on_end", 3, [3]),
        (HasNoState(), "state_dict", 0, []),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_callback_that_fails_ends_training_with_a_checkpoint(
    callback: Callback, event: str, step: int, saved: list[int], trainer: Trainer, tmp_path: Path
) -> None:
    recorder = Recorder()
    training = dataclasses.replace(trainer.training, callbacks=[callback, recorder])
    with pytest.raises(CallbackError) as caught:
        run(training, tmp_path, trainer=trainer)
    message = str(caught.value)
    assert message.startswith(f"callback {callback.name} failed in {event} after step {step}: ")
    assert RunFolder(tmp_path).checkpoints().steps() == saved
    if saved:
        assert "KeyError: 'nothing'" in message
        assert "test_delivery.py:" in message
        assert f"The same command resumes from the checkpoint of step {saved[-1]}, " in message
    else:
        assert "There is no checkpoint yet; the same command starts again." in message
    # The others are told of the event all the same, and of the end.
    assert recorder.events[-1] == ("end", Outcome.FINISHED if event == "on_end" else Outcome.FAILED)
    assert event not in ("on_step", "on_evaluation") or (event.removeprefix("on_"), step) in recorder.events


def test_an_observer_that_fails_is_left_out_and_training_goes_on(
    trainer: Trainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callbacks = [Watches("on_start", 0), Watches("on_step"), Watches("on_evaluation"), Watches("on_end")]
    ended = run(dataclasses.replace(trainer.training, callbacks=callbacks), tmp_path, trainer=trainer)
    assert ended.evaluation is not None
    out = capsys.readouterr().out
    for event, step in (("on_start", 0), ("on_step", 2), ("on_evaluation", 2), ("on_end", 3)):
        assert out.count(f"callback Watches failed in {event} after step {step}: KeyError: 'nothing'\n") == 1
    assert out.count("Training continues without it.") == 4


def test_callbacks_that_do_not_ask_cost_no_fetch(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step runs its program once, and each result comes to the host once, with callbacks and without."""

    class Fetched:
        def __init__(self, value: Any) -> None:
            self._value = value

        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            counts["fetches"] += 1
            return np.asarray(self._value)

    class Counting:
        def __init__(self, step: Any) -> None:
            self._step = step

        def start(self, **features: Any) -> Callable[[], dict[str, Fetched]]:
            counts["steps"] += 1
            results = self._step.start(**features)
            return lambda: {name: Fetched(value) for name, value in results().items()}

        def __getattr__(self, name: str) -> Any:
            return getattr(self._step, name)

    found, step = [], trainer.train_step
    for folder, callbacks in (("without", []), ("with", [Callback(), Watches("nowhere"), Recorder()])):
        counts = {"steps": 0, "fetches": 0}
        monkeypatch.setattr(trainer, "train_step", Counting(step))
        (tmp_path / folder).mkdir()
        TrainingRun(trainer, RunFolder(tmp_path / folder), Start(), StopRequest(), callbacks).run()
        found.append(counts)
    assert found[0] == found[1]
    assert found[0]["steps"] == 3
