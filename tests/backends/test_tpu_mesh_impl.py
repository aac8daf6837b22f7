"""The graph that TensorFlow would hand to a TPU: built, and looked at, for lack of one to run it on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.backends import tpu_mesh_impl
from meshtf.errors import DeviceError, LayoutError, ShapeError
from meshtf.lowering.emit.tpu_program import TpuProgram
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.mesh_impl.tpu.tpu_system import TpuSystem

BATCH, D_MODEL = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8)


def topology(x: int, y: int, z: int, cores: int) -> tf.tpu.experimental.Topology:
    """Of one host."""
    coordinates = list(itertools.product(range(x), range(y), range(z), range(cores)))
    return tf.tpu.experimental.Topology(mesh_shape=[x, y, z, cores], device_coordinates=np.array([coordinates]))


@pytest.fixture
def _tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TPU of eight cores is there, as far as its description goes."""
    system = TpuSystem.of(topology(2, 2, 1, 2))
    monkeypatch.setattr(tpu_mesh_impl, "tpu_system", lambda tpu: system)


def test_the_torus_is_that_of_the_topology() -> None:
    assert TpuSystem.of(topology(4, 2, 1, 2)).torus == Torus((4, 2), 2)
    assert TpuSystem.of(topology(2, 2, 4, 1)).torus == Torus((2, 2, 4), 1)


def test_devices_by_position() -> None:
    system = TpuSystem.of(topology(2, 2, 2, 1), "worker")
    assert system.devices([(0, 0, 1, 0), (1, 1, 0, 0)]) == (
        "/job:worker/task:0/device:TPU:1",
        "/job:worker/task:0/device:TPU:6",
    )
    assignment = system.device_assignment([(1, 1, 0, 0), (0, 0, 1, 0)])
    assert assignment.core_assignment.tolist() == [[[1, 1, 0, 0]], [[0, 0, 1, 0]]]


@pytest.mark.usefixtures("_tpu")
def test_cores_are_placed_on_the_torus_that_is_there() -> None:
    impl = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows")
    assert impl.torus == Torus((2, 2), 2)
    assert impl.devices == tuple(f"/task:0/device:TPU:{n}" for n in (0, 2, 3, 1, 4, 6, 7, 5))
    assert (impl.size, impl.ndims) == (8, 2)


@pytest.mark.usefixtures("_tpu")
def test_another_torus_than_the_one_that_is_there() -> None:
    impl = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows", physical_torus=Torus((4, 2), cores_per_chip=1))
    with pytest.raises(DeviceError, match='was laid onto 4x2 chips with 1 core each, and TPU "local" has 2x2 chips'):
        _ = impl.devices


@pytest.mark.usefixtures("_tpu")
def test_every_core_is_handed_the_feeds_and_its_own_slices() -> None:
    impl = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows;d_model:cols")

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(x, [mtf.Dimension("d_ff", 4)], use_bias=False)))
        mtf.optimize.SgdOptimizer(0.1).minimize(mtf.check_finite(loss))
        return loss

    plan = mtf.function(train_step, impl, inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])})._execution.plan
    slices = {name: {c: tf.Variable(_zeros(plan, name)) for c in range(8)} for name in plan.variable_names}
    program = TpuProgram(plan, impl.device_assignment, slices).traced(asserted=True)
    replicated = [op for op in program.graph.get_operations() if op.type == "TPUReplicatedInput"]
    captured = {inner.name: outer for outer, inner in program.graph.captures}
    handles = [[captured[x.name] for x in op.inputs] for op in replicated[1:]]
    for name, given in zip(plan.variable_names, handles, strict=True):
        assert all(handle is variable.handle for handle, variable in zip(given, slices[name].values(), strict=True))
    (metadata,) = (op for op in program.graph.get_operations() if op.type == "TPUReplicateMetadata")
    assert metadata.get_attr("num_replicas") == 8
    places = np.reshape(metadata.get_attr("device_assignment"), [8, 4])
    assert [(x, y, core) for x, y, _, core in places.tolist()] == list(impl.core_positions)


def _zeros(plan: mtf.lowering.plan.Plan, name: str) -> tf.Tensor:
    (value,) = {i.output for i in plan.reads if i.name == name}
    return tf.zeros(value.slice_shape, value.dtype)


def test_arguments_are_checked() -> None:
    with pytest.raises(ShapeError, match="the shape of a mesh is needed"):
        mtf.TpuMeshImpl(None, "", physical_torus="2x2")
    with pytest.raises(LayoutError, match='names mesh axis "row"'):
        mtf.TpuMeshImpl("rows:8", "batch:row", physical_torus="2x2")


def test_a_tpu_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tpu: str) -> None:
        raise ValueError(f"no TPU is called {tpu}\nin this project")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", refuse)
    with pytest.raises(DeviceError, match=r'was asked for \("pod"\), and there is none: no TPU is called pod\.\n'):
        mtf.TpuMeshImpl("rows:8", "", tpu="pod")
