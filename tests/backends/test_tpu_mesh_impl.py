"""Programs on the virtual TPU: steps, checkpoints, checks, what a store holds, and what is refused."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import DeviceError, ExecutionError, LayoutError, NonFiniteError, ShapeError
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.testing import assert_close, terms_of
from tests.fresh_process import run_fresh

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 32)
MESH, LAYOUT = "rows:2;cols:4", "batch:rows;d_ff:cols"
X = np.random.default_rng(0).normal(size=[16, 8]).astype(np.float32)
STEPS = 4


def train_step(x: mtf.Tensor) -> list[mtf.Tensor]:
    h = mtf.dropout(mtf.layers.dense(x, [D_FF], activation=mtf.relu, name="wi"), True, rate=0.1)
    loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(h, [D_MODEL], name="wo") - x))
    mtf.optimize.AdamWOptimizer(0.01).minimize(mtf.check_finite(loss))
    return [loss, h, mtf.reduce_sum(x, output_shape=[D_MODEL])]


def step_on(
    mesh_impl: mtf.SpmdMeshImpl | mtf.TpuMeshImpl, pass_options: PassOptions = DEFAULT_PASS_OPTIONS
) -> mtf.Function:
    inputs = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    return mtf.function(train_step, mesh_impl, inputs=inputs, pass_options=pass_options)


def values(step: mtf.Function) -> dict[str, np.ndarray]:
    return {name: step.variables[name] for name in step.variables}


def test_steps_and_checkpoints_are_those_of_virtual_cpus(tmp_path: Path) -> None:
    """Initial values and dropout are the same; a checkpoint goes to and fro, onto other meshes, in the same bytes.

    Updates are fused, and use variables in another order than that in which programs name them.
    """
    fused = PassOptions(smallest_fused_update=1)
    spmd, tpu = (step_on(kind(MESH, LAYOUT), fused) for kind in (mtf.SpmdMeshImpl, mtf.TpuMeshImpl))
    for step in (spmd, tpu):
        step.initialize()
    terms = terms_of(spmd._execution.plan)
    for name, value in values(spmd).items():
        assert_close(tpu.variables[name], value, terms=terms, what=name)
    results = {step: [step(x=X) for _ in range(STEPS)] for step in (spmd, tpu)}
    for number, (ours, theirs) in enumerate(zip(results[tpu], results[spmd], strict=True)):
        assert [x.shape for x in ours] == [x.shape for x in theirs]
        np.testing.assert_array_equal(ours[1] == 0, theirs[1] == 0)  # dropped, or not reached
        for x, y in zip(ours, theirs, strict=True):
            assert_close(x.numpy(), y.numpy(), terms=terms, steps=number, magnitude=float(np.abs(X).max()) * 8)

    saved = CheckpointFolder(tmp_path / "tpu").save(STEPS, tpu.variables, {})
    again = CheckpointFolder(tmp_path / "tpu").open(STEPS)
    others = [step_on(mtf.SpmdMeshImpl("all:4", "d_ff:all")), step_on(mtf.TpuMeshImpl("a:2;b:2", "d_model:a;d_ff:b"))]
    for other in others:
        restore(again, [other])
        for name, value in values(tpu).items():
            np.testing.assert_array_equal(other.variables[name], value, name)
        CheckpointFolder(tmp_path / str(id(other))).save(STEPS, other.variables, {})
    expected = tpu(x=X)[0].numpy()
    for other in others:
        assert_close(other(x=X)[0].numpy(), expected, terms=terms, steps=STEPS)
    restore(again, [spmd])
    on_cpus = CheckpointFolder(tmp_path / "cpus").save(STEPS, spmd.variables, {})
    files = {x.relative_to(saved) for x in saved.rglob("*") if x.is_file()}
    assert files == {x.relative_to(on_cpus) for x in on_cpus.rglob("*") if x.is_file()} != set()
    assert all((saved / name).read_bytes() == (on_cpus / name).read_bytes() for name in files)


@pytest.fixture(scope="module")
def trained() -> mtf.Function:
    """A program on the virtual TPU, after a step."""
    step = step_on(mtf.TpuMeshImpl(MESH, LAYOUT))
    step(x=X)
    return step


def test_a_failed_check_assigns_nothing_and_neither_do_steps_after_it(trained: mtf.Function) -> None:
    step, bad = trained, np.where(X[3, 2] == X, np.nan, X)
    before = values(step)
    losses = [float(step(x=X)[0]) for _ in range(2)]
    for name, value in before.items():
        step.variables[name] = value
    program = step._execution.program
    started = [program.start([tf.constant(x)]) for x in (bad, X, X)]
    assert int(started[0]()[1]) == 0
    started += [program.start([tf.constant(x)]) for x in (bad, X)]  # anew, with the others' failures not yet seen
    assert [int(results()[1]) for results in started[1:3]] == [0, 0]
    started.append(program.start([tf.constant(X)]))
    assert [int(results()[1]) for results in started[3:]] == [0, 0, 0]
    with pytest.raises(NonFiniteError, match="nothing was assigned in this step"):
        step(x=bad)
    for name, value in before.items():
        np.testing.assert_array_equal(step.variables[name], value, name)
    in_function = tf.function(lambda x: step(x=x)[0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a NaN or an infinity"):
        in_function(tf.constant(bad))
    assert [float(in_function(tf.constant(X))), float(step(x=X)[0])] == losses  # to the bit


def test_feeds_may_change_once_they_are_fed_and_slices_keep_what_they_are_given() -> None:
    def copied(x: mtf.Tensor) -> mtf.Tensor:
        kept = mtf.get_variable(x.mesh, "kept", [BATCH, D_MODEL], initializer=mtf.zeros)
        return mtf.assign(kept, x)

    step = mtf.function(
        copied, mtf.TpuMeshImpl(MESH, "batch:rows;d_model:cols"), {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    )
    step.initialize()
    program, x = step._execution.program, X.copy()
    results = program.start([tf.convert_to_tensor(x)])
    x[:] = -1
    np.testing.assert_array_equal(results()[0][0], X)
    np.testing.assert_array_equal(step.variables["kept"], X)
    buffers = step.variables.slices("kept").slices.array
    step(x=X)
    assert buffers.is_deleted()  # its memory was taken
    held = step.variables.slices("kept").slices[5]
    assert (held.shape, held.dtype) == ([8, 2], tf.float32)
    before = held.numpy()
    step(x=2 * X)
    np.testing.assert_array_equal(before, X[8:, 2:4])
    step.variables["kept"] = 3 * X
    np.testing.assert_array_equal(held.numpy(), 3 * X[8:, 2:4])
    with pytest.raises(ValueError, match=r"a slice \[8, 2\] was given an array \[2, 8\]"):
        held.assign(np.zeros([2, 8], np.float32))


def test_a_runtime_that_fails_is_told_of(trained: mtf.Function) -> None:
    slices = trained.variables.slices("wi/kernel").slices
    there = slices.array
    trained.variables["wi/kernel"] = trained.variables["wi/kernel"]
    slices.array.delete()  # as a runtime that has ended leaves it
    with pytest.raises(ExecutionError, match=r"failed on the cores of mesh \[rows:2 cols:4\]: .*\n.*from its last"):
        trained(x=X)
    slices.array = there
    trained(x=X)


def test_more_memory_than_there_is_is_told_of_by_the_plan() -> None:
    """For 1 PiB no address space of x86-64 or ARM has room, whatever a system promises."""

    def sorted_pairs(x: mtf.Tensor) -> mtf.Tensor:
        sizes = [("batch", 2**16), ("other", 2**16), ("third", 2**16)]
        return mtf.reduce_sum(mtf.sort(mtf.broadcast(x, sizes), "third"))

    mesh_impl = mtf.TpuMeshImpl("rows:1", "", check_memory=False)
    step = mtf.function(sorted_pairs, mesh_impl, inputs={"x": mtf.TensorSpec([("batch", 2**16)])})
    with pytest.raises(DeviceError, match=r'"sorted_pairs" takes more .* mesh \[rows:1\] have left: RESOURCE') as e:
        step(x=np.zeros([2**16], np.float32))
    text = str(e.value)
    assert re.search(rf"By the plan each core takes 3\.0 PiB at its peak in \S+, at {__file__}:", text)
    assert "0 B of it for variables. The largest at that point: 1.0 PiB " in text
    assert " [batch:65536 other:65536 third:65536] float32; " in text
    assert "for this process" not in text  # virtual cores do not count their memory
    assert "For a topology of TPUs, compile() of the program also tries layouts and recomputation.\nRestart" in text


def test_a_store_is_of_one_kind_of_devices() -> None:
    spmd = step_on(mtf.SpmdMeshImpl(MESH, LAYOUT))
    spmd.initialize()
    with pytest.raises(LayoutError, match="programs that share a store need the same mesh and devices"):
        mtf.function(
            train_step,
            mtf.TpuMeshImpl(MESH, LAYOUT),
            inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])},
            variables=spmd.variables,
        )(x=X)


def test_devices_and_arguments() -> None:
    assert mtf.TpuMeshImpl("rows:2", "batch:rows").devices == tuple(
        f"/job:pjrt/replica:0/task:0/device:CPU:{n}" for n in range(2)
    )
    on_torus = mtf.TpuMeshImpl("rows:2;cols:4", "batch:rows", physical_torus="2x2")
    assert (on_torus.torus, on_torus.size, on_torus.ndims) == (Torus((2, 2), 2), 8, 2)
    assert on_torus.core_positions is not None
    assert len(set(on_torus.core_positions)) == 8
    with pytest.raises(ShapeError, match="the shape of a mesh is needed"):
        mtf.TpuMeshImpl(None, "", physical_torus="2x2")
    with pytest.raises(LayoutError, match='names mesh axis "row"'):
        mtf.TpuMeshImpl("rows:8", "batch:row", physical_torus="2x2")
    with pytest.raises(
        DeviceError, match=r"mesh \[rows:16\] has 16 cores, and the virtual TPU 8; make the mesh smaller"
    ):
        mtf.TpuMeshImpl("rows:16", "batch:rows")


NO_TPU = """
import meshtf as mtf

step = mtf.function(
    lambda x: mtf.reduce_sum(x), mtf.TpuMeshImpl("rows:4", "batch:rows", physical_torus="1x2"),
    {"x": mtf.TensorSpec("batch:8")})
print(step.report().results[0].layout, len(step.hlo()) > 100)
mesh = lambda: mtf.TpuMeshImpl("rows:4", "")
for act in (mesh, lambda: step([0.0] * 8), lambda: mtf.virtual_tpu(4), mesh, lambda: mtf.virtual_tpu(8)):
    try:
        print("done", act())
    except mtf.errors.DeviceError as error:
        print(error)
"""


def test_without_a_tpu(tmp_path: Path) -> None:
    """Programs are lowered and reported on, and none runs until there is a virtual one."""
    (tmp_path / "no_tpu.py").write_text(NO_TPU)
    finished = run_fresh([str(tmp_path / "no_tpu.py")])
    assert not finished.status, finished.stderr
    assert finished.stdout.count("done") == 2
    refusal = "a TPU was asked for, and there is none: the runtime sees none on this machine"
    assert finished.stdout.count(refusal) == 2
    assert finished.stdout.count("no_tpu.py:") == 2
    assert "call mtf.virtual_tpu(4) before the first mesh" in finished.stdout
    assert "mtf.virtual_tpu(8) came too late: this process has a virtual TPU of 4 cores already" in finished.stdout


def test_a_tpu_that_another_process_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshtf.mesh_impl.pjrt import of_this_process, pjrt

    def in_use(platform: str) -> None:
        raise RuntimeError(
            f"Unable to initialize backend '{platform}': ABORTED: The TPU is already in use by process 7"
        )

    monkeypatch.setitem(of_this_process._PROCESS, "TPU", of_this_process._OfThisProcess(of_this_process.TPU))
    monkeypatch.setattr(pjrt, "num_available_tpu_chips_and_device_id", lambda: (4, "0x0063"))
    monkeypatch.setattr(pjrt.jax, "devices", in_use)
    with pytest.raises(DeviceError, match=r"cannot be opened: Unable .* in use by process 7\nA TPU is one process's"):
        mtf.TpuMeshImpl("rows:4", "")


def test_without_jaxlib_of_a_supported_release(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshtf.mesh_impl.pjrt import of_this_process, pjrt

    monkeypatch.setattr(pjrt, "RELEASE", (0, 8))
    monkeypatch.setitem(of_this_process._PROCESS, "TPU", of_this_process._OfThisProcess(of_this_process.TPU))
    with pytest.raises(DeviceError, match=r"through jaxlib, which is of release 0\.8; meshtf supports 0\.10, 0\.11, 0"):
        mtf.TpuMeshImpl("rows:4", "")
    monkeypatch.setitem(sys.modules, "meshtf.mesh_impl.pjrt.pjrt", None)
    with pytest.raises(
        DeviceError, match=r"(?s)run through jaxlib, which is not installed.*pip install 'meshtf\[tpu\]'"
    ):
        mtf.TpuMeshImpl("rows:4", "")
