"""Programs on virtual GPUs: their results, the precision of their products, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DeviceError, UsageError
from meshtf.mesh_impl.pjrt.pjrt import Cores
from meshtf.tensorflow_private.xla_modules import PRECISIONS, parsed_hlo
from meshtf.testing import assert_close, terms_of
from tests.fresh_process import run_fresh

INPUTS = {
    "images": mtf.TensorSpec("batch:8 height:6 width:6 channels:4"),
    "labels": mtf.TensorSpec("batch:8", tf.int32),
}
LAYOUT = "batch:rows;hidden:cols"


def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    """Has products and convolutions, forward and in gradients."""
    hidden, classes = mtf.Dimension("hidden", 8), mtf.Dimension("classes", 4)
    h = mtf.relu(mtf.layers.conv2d(images, mtf.Dimension("features", 4), name="conv"))
    h = mtf.layers.dense(h, [hidden], reduced_dims=h.shape.dims[1:], activation=mtf.relu, name="hidden")
    logits = mtf.layers.dense(h, [classes], name="logits")
    targets = mtf.one_hot(labels, classes)
    loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, targets, classes))
    mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return loss


def step_on(mesh_impl: mtf.SpmdMeshImpl | mtf.GpuMeshImpl) -> mtf.Function:
    return mtf.function(train_step, mesh_impl, inputs=INPUTS)


@pytest.mark.parametrize("precision", [None, pytest.param("highest", marks=pytest.mark.long)])
def test_steps_are_those_of_virtual_cpus(precision: str | None) -> None:
    """Whatever the precision asked for, since processors multiply in float32."""
    generator = np.random.default_rng(0)
    fed = {"images": generator.normal(size=[8, 6, 6, 4]).astype(np.float32), "labels": np.arange(8, dtype="i4") % 4}
    steps = [
        step_on(mtf.SpmdMeshImpl("rows:2;cols:2", LAYOUT)),
        step_on(mtf.GpuMeshImpl("rows:2;cols:2", LAYOUT, product_precision=precision)),
    ]
    on_cpus, on_gpus = ([step(**fed).numpy() for _ in range(3)] for step in steps)
    assert on_cpus[2] < on_cpus[0]
    terms = terms_of(steps[0]._execution.plan)
    for number, (ours, theirs) in enumerate(zip(on_gpus, on_cpus, strict=True)):
        assert_close(ours, theirs, terms=terms, steps=number, magnitude=8.0)


@pytest.mark.parametrize("precision", [None, *PRECISIONS])
def test_the_precision_is_written_into_every_product(precision: str | None) -> None:
    """The compiler finds it on both operands of every product and convolution, and nowhere else."""
    step = step_on(mtf.GpuMeshImpl("rows:2", "batch:rows", product_precision=precision))
    hlo = step.hlo()
    assert hlo is not None
    found = {"dot": [], "convolution": []}
    for computation in parsed_hlo(hlo).computations:
        for instruction in computation.instructions:
            given = list(instruction.precision_config.operand_precision)
            if instruction.opcode in found:
                found[instruction.opcode].append(given)
            else:
                assert given == []
    expected = [PRECISIONS[precision or "default"]] * 2
    assert len(found["dot"]) >= 5
    assert len(found["convolution"]) >= 2
    assert all(given == expected for own in found.values() for given in own)


@pytest.mark.parametrize(("capability", "arithmetic"), [((), "float32"), ((7, 5), "float32"), ((8, 0), "TF32")])
def test_the_arithmetic_is_one_that_the_gpu_has(
    capability: tuple[int, ...], arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cores, "compute_capability", capability)
    monkeypatch.setattr(mtf.GpuMeshImpl, "devices", ("/job:pjrt/replica:0/task:0/device:GPU:0",))
    assert mtf.GpuMeshImpl("rows:1", "").float32_products == arithmetic
    assert mtf.GpuMeshImpl("rows:1", "", product_precision="highest").float32_products == "float32"


def test_a_gpu_without_memory_for_a_step_says_which_batch_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual GPUs count no memory, so the counts of one of 105 GiB are given. A step of 3 PiB does run out of it."""
    counts = {"bytes_limit": 105 << 30, "bytes_in_use": 5 << 30}
    monkeypatch.setattr(Cores, "_counted", lambda _, what: [counts[what]])

    def sorted_pairs(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(mtf.sort(mtf.broadcast(x, f"{x.shape} other:65536 third:65536"), "third"))

    mesh_impl = mtf.GpuMeshImpl("rows:1", "", check_memory=False)
    step = mtf.function(sorted_pairs, mesh_impl, {"x": mtf.TensorSpec("batch:65536")})
    with pytest.raises(DeviceError) as raised:
        step(np.zeros([65536], np.float32))
    lines = str(raised.value).splitlines()
    assert "takes more memory than the cores of mesh [rows:1] have left: RESOURCE_EXHAUSTED" in lines[0]
    assert "The largest at that point: 1.0 PiB broadcast [batch:65536 other:65536 third:65536] float32; " in lines[1]
    assert lines[2] == (
        "Each core has 105.0 GiB for this process, which memory_fraction sets on GPUs, and other arrays take 5.0 GiB "
        'of it. By an estimate from the plan, "batch" of 2 instead of 65,536 would fit, with 96.0 GiB a core.'
    )
    assert "mtf.layer_stack" in lines[3]
    assert lines[4].startswith("Restart the process;")


def test_what_is_refused() -> None:
    text = r"mesh \[rows:16\] has 16 cores, and 8 virtual GPUs are there; make the mesh smaller, or mtf\.virtual_gpus"
    with pytest.raises(DeviceError, match=text):
        mtf.GpuMeshImpl("rows:16", "")
    with pytest.raises(
        UsageError, match=r"product_precision must be one of default, high, highest, or None, and is 'hi"
    ):
        mtf.GpuMeshImpl("rows:2", "", product_precision="hihg")
    for share in (0, 1.5, True, "half"):
        with pytest.raises(
            UsageError, match="memory_fraction must be a share of a GPU's memory, above 0 and at most 1"
        ):
            mtf.MeshOptions(memory_fraction=share)  # type: ignore[arg-type]
    with pytest.raises(
        DeviceError, match=r"mtf\.virtual_gpus\(16\) came too late: this process has a virtual GPU of 8"
    ):
        mtf.virtual_gpus(16)
    with pytest.raises(DeviceError, match=r"a process has from 1 to 4,096 virtual GPUs"):
        mtf.virtual_gpus(0)
    with pytest.raises(UsageError, match=r"mtf\.virtual_gpus\('4'\): the number of cores is a whole number"):
        mtf.virtual_gpus("4")  # type: ignore[arg-type]


NO_GPU = """
import meshtf as mtf

for _ in range(2):
    try:
        mtf.GpuMeshImpl("rows:2", "")
    except mtf.errors.DeviceError as error:
        print(error)
mtf.virtual_gpus(2)
print(mtf.GpuMeshImpl("rows:2", "").float32_products)
"""


def test_without_a_gpu(tmp_path: Path) -> None:
    """The message says what this machine lacks, and virtual ones can still be made."""
    (tmp_path / "no_gpu.py").write_text(NO_GPU)
    finished = run_fresh([str(tmp_path / "no_gpu.py")])
    assert not finished.status, finished.stderr
    assert finished.stdout.count("a GPU was asked for, and none can be used: ") == 2
    assert finished.stdout.count("no_gpu.py:6") == 2
    assert finished.stdout.rstrip().endswith("float32")
