"""Products of int8: a GPU's own are exact, too, and their operands travel as int8."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.planning.plan import Collective
from meshtf.quantization import Quantization, QuantizedTensor, quantized_einsum, quantized_weights
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import plan

SPECS = {"x": mtf.TensorSpec("batch:3 hidden:6006", tf.int8), "w": mtf.TensorSpec("hidden:6006 d_ff:5", tf.int8)}
generator = np.random.default_rng(0)
X, W = (generator.integers(100, 127, shape, np.int8, endpoint=True) for shape in ([3, 6006], [6006, 5]))
X[1] *= -1


def products(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
    """With one scale, and with one for each of 3 groups along the dimension that is summed."""
    given = QuantizedTensor(x, mtf.ones(x.mesh, "batch:3"))
    scales = [mtf.ones(x.mesh, shape) for shape in ("d_ff:5", "hidden:3 d_ff:5")]
    return [quantized_einsum(given, QuantizedTensor(w, scale), "batch d_ff") for scale in scales]


def products_of_int8(step: mtf.Function) -> int:
    """Dots in the program whose operands are int8, and whose result is int32."""
    hlo = step.hlo()
    assert hlo is not None
    found = 0
    for computation in parsed_hlo(hlo).computations:
        types = {i.id: i.shape.element_type for i in computation.instructions}
        names = computation.program_shape.result.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_number
        dots = [i for i in computation.instructions if i.opcode == "dot"]
        found += sum([names[types[n]].name for n in (*i.operand_ids, i.id)] == ["S8", "S8", "S32"] for i in dots)
    return found


@pytest.mark.parametrize("platform", ["cuda", ""])
def test_a_gpu_multiplies_int8_and_is_exact(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are far above 2^24. All cores sum a part of each: they do not divide the groups."""
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", platform)
    step = mtf.function(products, mtf.GpuMeshImpl("rows:2;cols:2", "hidden:rows;d_ff:cols"), SPECS)
    assert products_of_int8(step) == (2 if platform else 0)
    total = X.astype(np.int64) @ W.astype(np.int64)
    assert np.abs(total).min() > 2**25
    for found in step(x=X, w=W):
        np.testing.assert_array_equal(found, total.astype(np.float32))


def test_gathered_operands_are_int8() -> None:
    """Activations have `batch` split where weights have `d_ff`. They are gathered: a byte for each number, and a scale
    for each row."""

    def layer(x: mtf.Tensor) -> mtf.Tensor:
        with quantized_weights(Quantization(activations="dynamic")):
            return mtf.layers.dense(x, "d_ff:512", use_bias=False, name="dense")

    specs = {"x": mtf.TensorSpec("batch:64 hidden:256")}
    made = plan(layer, specs, "rows:2", "d_ff:rows", activation_layout="batch:rows")
    sent = [(i.step.kind, i.input.dtype, i.input.slice_bytes) for i in made.instructions if isinstance(i, Collective)]
    assert sent == [("all_gather", tf.int8, 32 * 256), ("all_gather", tf.float32, 32 * 4)]
