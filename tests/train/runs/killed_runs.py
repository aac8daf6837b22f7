"""Kills training runs at random moments, resumes each until it ends, and compares it with one that nobody disturbed.

    python killed_runs.py FOLDER KILLS SEED

Runs are forked from this process, which has imported everything and started nothing; one in twenty is started from
nothing, so that it is killed among its imports. Every run is `meshtf-train` on a model of 33 parameters.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorboard.backend.event_processing.event_file_loader  # noqa: F401  else each run would import it
import tensorflow as tf

import meshtf as mtf
from meshtf.bin import train
from meshtf.train.data import ArrayTask
from meshtf.train.monitoring.metrics import read_metrics

STEPS = 60
CONFIGURATION = f"""
Training.model = @SmallModel()
Training.task = @small_task()
Training.optimizer = @AdamWOptimizer()
AdamWOptimizer.learning_rate = 0.05
Training.mesh_shape = "rows:2"
Training.layout = "batch:rows"
Training.batch_size = 8
Training.num_steps = {STEPS}
Training.log_every = 1
Training.evaluate_every = 10
Training.checkpoint_every_steps = 3
Training.checkpoint_every_minutes = None
Training.keep_checkpoints = 2
"""
LONGEST = 240.0
"""Seconds until a run that is not killed must have ended."""

_SIGNALS = [signal.SIGKILL] * 7 + [signal.SIGTERM] * 2 + [signal.SIGINT] * 2


@gin.configurable
@dataclasses.dataclass(frozen=True)
class SmallModel:
    """Two layers with dropout, whose random bits must go on where they were."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        h = mtf.layers.dense(features["x"], mtf.Dimension("hidden", 8), activation=mtf.tanh, name="hidden")
        h = mtf.dropout(h, is_training, rate=0.25)
        y = mtf.reduce_sum(mtf.layers.dense(h, mtf.Dimension("out", 1), name="out"), output_shape=features["y"].shape)
        return {"loss": mtf.square(y - features["y"])}


@gin.configurable
def small_task() -> ArrayTask:
    def features(count: int, seed: int) -> dict[str, np.ndarray]:
        x = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
        return {"x": x, "y": np.sin(x.sum(-1))}

    shapes = {"x": mtf.Shape([("inputs", 2)]), "y": mtf.Shape([])}
    return ArrayTask("small", shapes, train=features(40, 0), held_out=features(11, 1))


def arguments(folder: Path) -> list[str]:
    return ["meshtf-train", f"--gin_file={folder.parent / 'small.gin'}", f"--model_dir={folder}"]


class Run:
    """A run in a process of its own."""

    def __init__(self, folder: Path, *, is_forked: bool = True) -> None:
        self.output, self.is_forked = folder.parent / f"{folder.name}.output", is_forked
        self._status: int | None = None
        descriptor = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if not is_forked:
            command = [sys.executable, __file__, str(folder)]
            both = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number in (1, 2)]
            self.pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=both)
        else:
            self.pid = os.fork()
            if not self.pid:
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
                run_here(folder)
        os.close(descriptor)

    def ended(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, seconds: float) -> int | None:
        """Its exit status, if it ends by then."""
        end = time.monotonic() + seconds
        while (status := self.ended()) is None and time.monotonic() < end:
            time.sleep(0.002)
        return status

    def must_end(self) -> int:
        status = self.wait(LONGEST)
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.ended()
            raise AssertionError(f"not ended after {LONGEST} s: {self.output.read_text()}")
        return status


def run_here(folder: Path) -> None:
    """As the program does, and ends the process."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    status = 1
    try:
        status = train.main(arguments(folder))
    except KeyboardInterrupt:  # before the program has begun
        status = 128 + signal.SIGINT
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def disturbed(folder: Path, rng: random.Random, usual_seconds: float, most: int) -> int:
    """Starts a run and kills it, again and again, until one ends by itself. How many were killed."""
    kills = 0
    for attempt in itertools.count():
        run = Run(folder, is_forked=rng.random() > 0.05)
        if kills < most and attempt < 8 and is_running_at_a_moment(run, folder, rng, usual_seconds):
            kill(run, rng)
            kills += 1
            continue
        status = run.must_end()
        assert status == 0, f"a resumed run ended with {status}: {run.output.read_text()}"
        return kills
    raise AssertionError


def is_running_at_a_moment(run: Run, folder: Path, rng: random.Random, usual_seconds: float) -> bool:
    """Waits for a moment that is drawn: from the start on, or about a step, since most of the time is taken by a start.

    Whether the run has not ended by then.
    """
    if rng.random() < 0.5:
        return run.wait(rng.uniform(0.0, usual_seconds)) is None
    step = rng.randint(1, STEPS)
    while run.wait(0.002) is None and not any(line["step"] >= step for line in read_metrics(folder / "metrics.jsonl")):
        pass
    return run.wait(rng.uniform(0.0, 0.1)) is None


def kill(run: Run, rng: random.Random) -> None:
    """By one signal; or, of those that ask, by a second one soon after."""
    chosen = rng.choice(_SIGNALS) if run.is_forked else signal.SIGKILL  # Python's imports cannot be asked
    os.kill(run.pid, chosen)
    if chosen != signal.SIGKILL and rng.random() < 0.3 and run.wait(rng.uniform(0.0, 0.3)) is None:
        os.kill(run.pid, chosen)
    status = run.must_end()
    # It was asked after its last step, or ended; or it died before anything else was said about the signal.
    assert status in (0, 128 + chosen, -chosen), f"{chosen.name} gave {status}: {run.output.read_text()}"
    # A second signal may come in a garbage collection, where Python shows KeyboardInterrupt and goes on.
    before = re.findall("(.*)\nTraceback", run.output.read_text())
    assert all(line.startswith("Exception ignored in") for line in before), run.output.read_text()


def results(folder: Path) -> list[dict[str, Any]]:
    """Every line of the metrics, without what a clock decides."""
    lines = read_metrics(folder / "metrics.jsonl")
    told_by_clocks = re.compile("per_second|_seconds$|^time$")
    return [{name: value for name, value in line.items() if not told_by_clocks.search(name)} for line in lines]


def tree(folder: Path) -> set[str]:
    """The names of all that is in a run's folder.

    TensorBoard's files have the time in theirs. The checkpoint before the last one is of whatever step a run that was
    asked to end had come to.
    """
    names = {re.sub(r"events\..*", "events", str(path.relative_to(folder))) for path in folder.rglob("*")}
    last = f"step_{STEPS:08}"
    return {re.sub(r"step_\d{8}", lambda step: last if step[0] == last else "earlier step", name) for name in names}


def check(folder: Path, whole: Path) -> None:
    text = (folder / "metrics.jsonl").read_text()
    assert results(folder) == results(whole), f"{text}\n\nis not\n\n{(whole / 'metrics.jsonl').read_text()}"
    assert results(folder)[-1]["variables_sha256"] == results(whole)[-1]["variables_sha256"]
    assert [json.loads(line)["step"] for line in text.splitlines()] == [line["step"] for line in results(whole)]
    assert tree(folder) == tree(whole), f"beside the names of an undisturbed run: {tree(folder) ^ tree(whole)}"
    for name in ("operative_config.gin", "report.txt"):
        assert (folder / name).read_text() == (whole / name).read_text(), f"{name} is another"


def main(folder: Path, kills: int, seed: int) -> None:
    (folder / "small.gin").write_text(CONFIGURATION)
    begin = time.monotonic()
    whole = Run(folder / "whole")
    assert whole.must_end() == 0, whole.output.read_text()
    seconds, done = time.monotonic() - begin, 0
    for number in itertools.count():
        if done >= kills:
            break
        rng, own = random.Random(f"{seed} {number}"), folder / f"run_{number}"
        try:
            found = disturbed(own, rng, seconds, kills - done)
            check(own, folder / "whole")
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, run {number}: {error}") from None
        done += found
        print(f"run {number}: killed {found} times", flush=True)
    print(f"{done} kills, {number} runs, {seconds:.1f} s for one that is not disturbed")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        run_here(Path(sys.argv[1]))
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
