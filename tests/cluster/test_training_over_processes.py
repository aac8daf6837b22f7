"""The same training step in two processes and in one: the same bits, each process with its own slices and inputs."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.checkpoint.saving.writing_together import check_folder_is_shared
from meshtf.cluster.cluster import Cluster
from meshtf.cluster.straggling import waits_of_all
from meshtf.errors import CheckpointError, ClusterError, DeviceError, SaveError, UsageError
from meshtf.train import Training
from meshtf.train.data import CentralCrop, ImageArrays, ImageFormat, ImageTask
from meshtf.train.evaluation import Evaluator
from tests.cluster.joined_processes import JoinedProcesses

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 16)
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
LAYOUT = "batch:data;d_ff:model"
STEPS = 3

pytestmark = pytest.mark.timeout(600)


@dataclasses.dataclass(frozen=True)
class Run:
    """Where a training ran, for comparison."""

    mesh_impl: mtf.SpmdMeshImpl
    step: mtf.Function

    @classmethod
    def of(cls, mesh_impl: mtf.SpmdMeshImpl, learning_rate: float = 1e-2, seed: int = 0) -> Run:
        def train_step(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
            h = mtf.dropout(mtf.layers.dense(x, [D_FF], activation=mtf.relu, name="in"), is_training=True, rate=0.5)
            y = mtf.layers.dense(h, [D_MODEL], name="out")
            loss = mtf.check_finite(mtf.reduce_mean(mtf.square(y - x)))
            mtf.optimize.AdamWOptimizer(learning_rate).minimize(loss)
            return loss, y

        return cls(mesh_impl, mtf.function(train_step, mesh_impl, {"x": mtf.TensorSpec([BATCH, D_MODEL])}, seed=seed))

    def steps(self, number: int = STEPS) -> list[np.ndarray]:
        return [result.numpy() for _ in range(number) for result in self.step(x=X)]


def mesh(shape: str = "data:2;model:2", layout: str = LAYOUT, **options: object) -> mtf.SpmdMeshImpl:
    return mtf.SpmdMeshImpl(shape, layout, **options)  # type: ignore[arg-type]


def alone(shape: str = "data:2;model:2", layout: str = LAYOUT, **options: object) -> mtf.SpmdMeshImpl:
    cores = mtf.convert_to_shape(shape).size
    return mesh(shape, layout, devices=[f"CPU:{i}" for i in range(cores)], num_processes=2, **options)


@functools.cache
def kept_runs() -> tuple[Run, Run]:
    """Of both processes and of this one alone, compiled once for all tests. They have taken as many steps each."""
    return Run.of(mesh()), Run.of(alone())


def same_bits(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


SCORES = np.array([30, 10, 40, 10, 50, 90, 20, 60, 50, 30, 50], np.uint8)
CLICKS = np.array([1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0])


class Brightness:
    """A model without weights: the score of an image is its brightness."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        scores = mtf.reduce_mean(features["images"], output_shape=features["labels"].shape)
        return {"loss": scores, "auc": {"scores": scores, "labels": features["labels"]}}


def evaluated() -> dict[str, float]:
    """Eleven images in batches of eight: in the last batch process 1 has padding only. Each process makes its rows."""
    source = ImageArrays(np.broadcast_to(SCORES[:, None, None, None], [11, 2, 2, 1]), CLICKS)
    format_ = ImageFormat(2, channels=1, mean=(0.0,), std=(1 / 255,))
    task = ImageTask(source, 2, format_, source, evaluation_crop=CentralCrop(1.0))
    training = Training(Brightness(), task, mtf.optimize.SgdOptimizer(0.1), "data:2;model:2", "batch:data", 8, 1)
    evaluation = Evaluator(training, mesh(layout="batch:data")).evaluate()
    assert evaluation is not None
    return {**evaluation.means, "count": evaluation.num_examples}


def train(cluster: Cluster) -> dict[str, object]:
    """What the test below looks at, all of it made in one go: each program costs a second."""
    joined, by_itself = kept_runs()
    results, expected = joined.steps(), by_itself.steps()
    slices = joined.step.input_slices()
    fed = joined.step(**joined.step.local_inputs(x=X[slices["x"]]))
    expected_of_part = by_itself.step(x=X)
    refusals = []
    try:
        _ = joined.step.variables["in/kernel"]
        across_model = Run.of(mesh(axes_over_processes=("model",), parameter_layout="d_ff:model"))
        across_model.step.initialize()
        _ = across_model.step.variables["in/kernel"]
    except UsageError as error:
        refusals.append(str(error))
    variables = joined.step.variables
    return {
        "evaluated": evaluated(),
        "same": same_bits(results, expected),
        "same from parts": same_bits([x.numpy() for x in fed], [x.numpy() for x in expected_of_part]),
        "results": [x.tobytes() for x in results],
        "slices": slices["x"],
        "cores": sorted(variables.slices("in/kernel").slices),
        "refusals": refusals,
        "report": str(joined.step.report()) == str(by_itself.step.report()),
    }


def test_two_processes_train_as_one(two_processes: JoinedProcesses) -> None:
    found = two_processes.run(train)
    pairs = SCORES[CLICKS == 1][:, None] - SCORES[CLICKS == 0].astype(np.float64)
    expected = {"loss": SCORES.mean(), "auc": np.mean((pairs > 0) + (pairs == 0) / 2), "count": 11}
    for index, own in enumerate(found):
        assert own["evaluated"] == pytest.approx(expected, rel=1e-6)
        assert own["same"]
        assert own["same from parts"]
        assert own["results"] == found[0]["results"]
        assert own["slices"] == (slice(4 * index, 4 * index + 4), slice(0, 8))
        assert own["cores"] == [2 * index, 2 * index + 1]
        assert own["report"]
        (of_slices,) = own["refusals"]
        assert 'of the 2 slices of variable "in/kernel"' in of_slices
        assert "are in other processes" in of_slices


def train_in_four(cluster: Cluster) -> tuple[bool, list[bytes]]:
    results = Run.of(mesh("data:4", "batch:data")).steps()
    own_cores = [f"CPU:{i}" for i in range(4)]
    expected = Run.of(mesh("data:4", "batch:data", devices=own_cores, num_processes=4)).steps()
    return same_bits(results, expected), [x.tobytes() for x in results]


@pytest.mark.long
def test_four_processes_train_as_one(fresh_processes: Callable[..., JoinedProcesses]) -> None:
    found = fresh_processes(4, cpus=4, heartbeat_timeout_seconds=30).run(train_in_four)
    assert [same for same, _ in found] == [True] * 4
    assert all(results == found[0][1] for _, results in found)


def differ(cluster: Cluster) -> list[str]:
    """What is said where each process has a program of its own."""
    own = cluster.process_index
    messages = []
    for run in (
        lambda: Run.of(mesh(), learning_rate=0.1 * (1 + own)).steps(1),
        lambda: Run.of(mesh(), seed=own).steps(1),
        lambda: Run.of(mesh(layout=("batch:data", LAYOUT)[own])).steps(1),
        lambda: Run.of(mesh(bucket_bytes=own)).steps(1),
        lambda: mtf.SpmdMeshImpl("all:3", ""),
        lambda: mtf.SpmdMeshImpl("all:2", "", [f"/job:worker/task:{1 - own}/device:CPU:{i}" for i in range(2)]),
    ):
        try:
            run()
        except (ClusterError, DeviceError) as error:
            messages.append(f"{type(error).__name__}: {error}")
    return messages


def test_programs_and_meshes_that_differ(two_processes: JoinedProcesses) -> None:
    for messages in two_processes.run(differ):
        rate, seed, layout, options, odd, elsewhere = messages
        assert 'ClusterError: program "train_step" differs between process 0 and process 1, in its graph' in rate
        assert "test_training_over_processes.py" in rate
        assert "value=float32 0.1" in rate
        assert "in its seed" in seed
        assert "process 0: 0\n  process 1: 1" in seed
        assert "in its layout" in layout
        assert "process 0: batch:data\n" in layout
        assert "process 0: bucket_bytes=0\n  process 1: bucket_bytes=1" in options
        assert "DeviceError: mesh [all:3] has 3 cores, and the cluster 2 processes with 8 + 8 devices" in odd
        assert "has no core in this process" in elsewhere


def save(cluster: Cluster, folder: Path) -> dict[str, object]:
    """A checkpoint of both processes, restored in one and in both, on other meshes; then one that fails in one."""
    joined, by_itself = kept_runs()
    joined.steps()
    saved_to = CheckpointFolder(folder)
    saved_to.save(STEPS, joined.step.variables, {"position": 7})
    further = joined.steps(1)
    saved = saved_to.newest_readable()
    assert saved is not None
    again = Run.of(mesh(axes_over_processes=("model",)))
    for run in (again, by_itself):
        restore(saved, [run.step])
    other_mesh = again.steps(1)
    whole = Run.of(mesh("all:1", "", devices=["CPU:0"]))
    restore(saved, [whole.step])
    variables = {name: whole.step.variables[name].tobytes() for name in whole.step.variables}
    cluster.barrier(f"saved in {folder.name}")

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        if cluster.process_index == 1:
            patch.setattr("meshtf.checkpoint.saving.write_checkpoint.write_chunks", fails)
        with pytest.raises(SaveError) as full:
            saved_to.save(STEPS + 1, joined.step.variables, {})
    check_folder_is_shared(cluster, folder)
    with pytest.raises(CheckpointError) as unshared:
        check_folder_is_shared(cluster, folder / str(cluster.process_index) / "run")
    return {
        "same": same_bits(further, by_itself.steps(1)),
        "near": max(float(np.max(np.abs(a - b))) for a, b in zip(further, other_mesh, strict=True)),
        "variables": variables,
        "full": str(full.value),
        "unshared": str(unshared.value),
        "steps": saved_to.steps(),
    }


def test_checkpoints_are_written_by_all_and_read_by_any_number(two_processes: JoinedProcesses, tmp_path: Path) -> None:
    found = two_processes.run(save, tmp_path)
    for own in found:
        assert own["same"]
        assert own["near"] < 1e-5
        assert own["variables"] == found[0]["variables"]
        assert "process 1 (127.0.0.1:" in own["full"]
        assert "No space left on device" in own["full"]
        assert own["steps"] == [STEPS]
        assert "is not the same folder in all processes: process 1 (127.0.0.1:" in own["unshared"]
    files = sorted(path.name for path in (tmp_path / f"step_{STEPS:08d}").iterdir())
    assert not [name for name in files if name.startswith(("process_", "part_"))]
    assert not list(tmp_path.glob(".*"))


WHOLE_DTYPES = {"half": tf.float16, "small": tf.uint16, "large": tf.uint32, "float": tf.float32}


def save_types_that_are_saved_whole(cluster: Cluster, folder: Path) -> list[bool]:
    """Of types of which TensorFlow cannot put slices together, split over processes: whether they come back."""
    rows, cols = mtf.Dimension("rows", 6), mtf.Dimension("cols", 4)

    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
        for name, dtype in WHOLE_DTYPES.items():
            variable = mtf.get_variable(mesh, name, [rows, cols], dtype, initializer=mtf.zeros, trainable=False)
            mtf.assign(variable.operation, mtf.cast(x, dtype))
        return mtf.reduce_sum(x)

    def made(mesh_impl: mtf.SpmdMeshImpl) -> mtf.Function:
        return mtf.function(program, mesh_impl, {"x": mtf.TensorSpec([rows, cols])})

    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    both, own = made(mesh(layout="rows:data;cols:model")), made(mesh("all:1", "", devices=["CPU:0"]))
    both(x=values)
    saved_to = CheckpointFolder(folder)
    saved_to.save(1, both.variables, {})
    saved = saved_to.newest_readable()
    assert saved is not None
    restore(saved, [own])
    return [own.variables[n].tobytes() == values.astype(d.as_numpy_dtype).tobytes() for n, d in WHOLE_DTYPES.items()]


def test_types_that_are_saved_whole(two_processes: JoinedProcesses, tmp_path: Path) -> None:
    assert two_processes.run(save_types_that_are_saved_whole, tmp_path) == [[True] * 4] * 2
    files = [path.name for path in (tmp_path / "step_00000001").iterdir()]
    assert not [name for name in files if not name.startswith(("checkpoint", "manifest.json", "variables."))]
    reader = tf.train.load_checkpoint(str(tmp_path / "step_00000001"))
    assert reader.get_tensor("half").tolist() == np.arange(24).reshape(6, 4).tolist()


def straggle(cluster: Cluster) -> tuple[int, list[float]]:
    joined, by_itself = kept_runs()
    by_itself.steps(5)
    joined.steps(1)
    before = waits_of_all(cluster)
    for _ in range(4):
        if cluster.process_index == 1:
            time.sleep(0.5)
        joined.steps(1)
    waits = waits_of_all(cluster).since(before)
    return waits.straggler, list(waits.seconds)


def test_a_straggler_is_who_waits_least(two_processes: JoinedProcesses) -> None:
    """Process 1 comes half a second late to each of four steps, and process 0 waits for it."""
    for straggler, seconds in two_processes.run(straggle):
        assert straggler == 1
        assert seconds[0] - seconds[1] > 1
