"""A virtual TPU whose cores are in two processes trains as virtual CPUs do, each process with its slices."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError, DeviceError, MeshtfError
from meshtf.testing import assert_close
from meshtf.train import Callback, RunFolder, StepReport, Trainer, TrainingRun
from meshtf.train import Run as RunOfCallbacks
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.resuming import resumed_start
from meshtf.train.runs.signals import StopRequest
from tests.cluster.joined_processes import JoinedProcesses
from tests.cluster.small_trainings import Small
from tests.cluster.test_training_over_processes import LAYOUT, STEPS, Run, X, mesh, same_bits

pytestmark = pytest.mark.timeout(600)


def cores(shape: str = "data:2;model:2", layout: str = LAYOUT, **options: object) -> mtf.TpuMeshImpl:
    return mtf.TpuMeshImpl(shape, layout, **options)  # type: ignore[arg-type]


def refusal(shape: str, **options: object) -> str:
    try:
        Run.of(cores(shape, "batch:data", **options)).steps(1)
    except (ClusterError, DeviceError) as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def train(cluster: Cluster, folder: Path) -> dict[str, object]:
    """What the test below looks at, in one go: each program is compiled."""
    mtf.virtual_tpu(4)
    joined, on_cpus = Run.of(cores()), Run.of(mesh())
    results, expected = joined.steps(), on_cpus.steps()
    CheckpointFolder(folder).save(STEPS, joined.step.variables, {})
    saved = CheckpointFolder(folder).newest_readable()
    assert saved is not None
    # Processes along the other axis, and back on virtual CPUs.
    expected_further = on_cpus.steps(1)
    across = Run.of(cores(axes_over_processes=("model",)))
    for run in (across, on_cpus):
        restore(saved, [run.step])
    further = [*(run.steps(1) for run in (joined, across, on_cpus)), expected_further]
    slices = joined.step.input_slices()
    fed = joined.step(**joined.step.local_inputs(x=X[slices["x"]]))
    return {
        "results": results,
        "expected": expected,
        "further": further,
        "fed": [x.numpy() for x in fed],
        "fed expected": [x.numpy() for x in on_cpus.step(x=X)],
        "slices": slices["x"],
        "cores": sorted(joined.step.variables.slices("in/kernel").slices),
        "processes": (joined.mesh_impl.process_of_core, across.mesh_impl.process_of_core),
        "uneven": refusal("data:3"),
        "too large": refusal("data:16"),
        "another program": refusal("data:2", bucket_bytes=cluster.process_index),
    }


def test_two_processes_train_as_virtual_cpus(two_processes: JoinedProcesses, tmp_path: Path) -> None:
    found = two_processes.run(train, tmp_path)
    for index, own in enumerate(found):
        # Sums over cores are done in another order than on virtual CPUs.
        for one, other in zip(own["results"], own["expected"], strict=True):
            assert_close(one, other, terms=256, magnitude=4.0)
        assert same_bits(own["results"], found[0]["results"])
        *others, expected = own["further"]
        for other in (*others, own["fed"]):
            for one, same in zip(other, own["fed expected"] if other is own["fed"] else expected, strict=True):
                assert_close(one, same, terms=256, magnitude=4.0)
        assert own["slices"] == (slice(4 * index, 4 * index + 4), slice(0, 8))
        assert own["cores"] == [2 * index, 2 * index + 1]
        assert own["processes"] == ((0, 0, 1, 1), (0, 1, 0, 1))
        assert "DeviceError: mesh [data:3] has 3 cores, and 2 processes with 4 + 4 virtual cores" in own["uneven"]
        assert "DeviceError: mesh [data:16] has 16 cores, and the virtual TPU 8" in own["too large"]
        assert "ClusterError" in own["another program"]
        assert "process 0: bucket_bytes=0\n  process 1: bucket_bytes=1" in own["another program"]
    assert np.isfinite(found[0]["results"][0])


class Failing(Callback):
    """Fails after step 5."""

    def on_step(self, run: RunOfCallbacks, report: StepReport) -> None:
        if report.step == 5:
            raise ValueError("its own fault")


def train_until_a_callback_fails(cluster: Cluster, folder: Path) -> tuple[str, str, list[int]]:
    """In process 1. Two further steps have been started by then."""
    mtf.virtual_tpu(4)
    training = dataclasses.replace(Small("digits_mlp", 8, "rows:8").training(), num_steps=12, log_every=1)
    trainer = Trainer(training, mtf.TpuMeshImpl(training.mesh_shape, training.layout))
    callbacks = [Failing()] if cluster.process_index == 1 else []
    with Agreement.of_this_process().own_folder(RunFolder.made(folder)) as own:
        run = TrainingRun(trainer, own, resumed_start(trainer, own), StopRequest(), callbacks)
        with pytest.raises(MeshtfError) as caught:
            run.run()
    return type(caught.value).__name__, str(caught.value), CheckpointFolder(folder / "checkpoints").steps()


def test_a_callback_that_fails_in_one_process_lets_all_finish_their_started_steps(
    two_processes: JoinedProcesses, tmp_path: Path
) -> None:
    other, failing = two_processes.run(train_until_a_callback_fails, tmp_path)
    assert (failing[0], other[0]) == ("CallbackError", "ProcessLostError")
    assert "has failed: callback Failing failed in on_step after step 5: ValueError: its own fault" in other[1]
    for _, said, steps in (other, failing):
        assert "The same command resumes from the checkpoint of step 7" in said
        assert steps == [7]


def step_for_ever(cluster: Cluster, folder: Path) -> None:
    mtf.virtual_tpu(1)
    run = Run.of(cores("data:2", "batch:data"))
    run.steps(1)
    (folder / str(cluster.process_index)).touch()
    while True:
        run.steps(1)


@pytest.mark.parametrize(
    ("number", "victim", "words"),
    [
        (signal.SIGKILL, 0, "has died or ended"),
        pytest.param(signal.SIGKILL, 1, "has died or ended", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, 0, "stopped, or cut off", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, 1, "stopped, or cut off", marks=pytest.mark.long),
    ],
    ids=["leader_killed", "killed", "leader_stopped", "stopped"],
)
def test_who_is_gone_is_named(
    fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path, number: signal.Signals, victim: int, words: str
) -> None:
    # Who is killed is known at once; a busy machine may leave one that lives without an answer for seconds.
    processes = fresh_processes(2, heartbeat_timeout_seconds=30 if number == signal.SIGKILL else 4)
    processes.start(step_for_ever, tmp_path)
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.1)
    processes.send_signal(victim, number)
    (raised,) = processes.answers(500, [1 - victim])
    assert raised.kind == "ProcessLostError", raised
    assert f"process {victim} (127.0.0.1:" in raised.message
    assert words in raised.message
    assert '. Program "train_step" waited for it. Start all processes again' in raised.message
