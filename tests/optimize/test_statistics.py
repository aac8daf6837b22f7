"""Statistics of whole weights: per layer of a stack, and without padding."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.house.sharpest import sharpest
from tests.optimize.interpreted_training import InterpretedTraining

BATCH, LAYERS = mtf.Dimension("batch", 4), mtf.Dimension("layers", 3)
D_MODEL, D_FF = mtf.Dimension("d_model", 4), mtf.Dimension("d_ff", 6)
NUM_STEPS = 5

OPTIMIZERS: dict[str, optimize.Optimizer] = {
    "adafactor": optimize.AdafactorOptimizer(),
    "unfactored adafactor": optimize.AdafactorOptimizer(0.05, beta_1=0.5, factored=False),
    "lamb": optimize.LambOptimizer(0.05, weight_decay=0.1),
    "lars": optimize.LarsOptimizer(1.0, weight_decay=0.1, trust_coefficient=0.02),
    "clipped adamw": optimize.ClippedOptimizer(optimize.AdamWOptimizer(0.05), [optimize.ClipByGlobalNorm(0.1)]),
}
TERMS = (2 * LAYERS.size * (D_MODEL.size + D_FF.size + FUNCTION_TERMS), BATCH.size, 4 * FUNCTION_TERMS)
"""Roundings of one step: through the layers and back, a sum over the batch, and the update of each element."""


def stack_of_layers(
    optimizer: optimize.Optimizer, mesh_shape: str, layout: str, *, unroll: bool
) -> InterpretedTraining:
    def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (x,) = carried
        normal = mtf.RandomNormal(stddev=0.5)
        wi = mtf.get_variable(x.mesh, "wi", [D_MODEL, D_FF], initializer=normal)
        wo = mtf.get_variable(x.mesh, "wo", [D_FF, D_MODEL], initializer=normal)
        scale = mtf.get_variable(x.mesh, "scale", [D_FF], initializer=mtf.ones)
        h = mtf.tanh(mtf.einsum([x, wi], output_shape=[BATCH, D_FF])) * scale
        return [x + mtf.einsum([h, wo], output_shape=[BATCH, D_MODEL])], []

    def step(x: mtf.Tensor) -> mtf.Tensor:
        (y,), _ = mtf.layer_stack(layer, x, LAYERS, unroll=unroll)
        loss = mtf.reduce_mean(mtf.square(y - 1.0))
        optimizer.minimize(loss)
        return loss

    return InterpretedTraining(step, {"x": mtf.TensorSpec([BATCH, D_MODEL])}, mesh_shape, layout)


@pytest.mark.parametrize("name", sharpest(OPTIMIZERS, ["adafactor"]))
def test_a_scan_is_updated_as_its_layers_are(name: str) -> None:
    unrolled = stack_of_layers(OPTIMIZERS[name], "all:1", "", unroll=True)
    scan = stack_of_layers(OPTIMIZERS[name], "rows:2;cols:2", "batch:rows;d_ff:cols", unroll=False)
    batches = np.random.default_rng(0).normal(size=(NUM_STEPS, 4, 4)).astype(np.float32)
    for number, x in enumerate(batches):
        assert_close(scan.step(x=x), unrolled.step(x=x), terms=TERMS, dtype="float32", steps=number)
    stacked = [n for n in scan.variables if n.startswith("layer/")]
    assert len(stacked) > 3
    for name in stacked:
        layers = [unrolled[name.replace("layer/", f"layer_{i:03d}/")] for i in range(LAYERS.size)]
        assert_close(scan[name], np.stack(layers), terms=TERMS, steps=NUM_STEPS, what=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_padding_changes_nothing(name: str) -> None:
    """Neither of the weights, nor of what is known of them: [5, 6] stored as [8, 6]."""
    vocab, stored = mtf.Dimension("vocab", 5), mtf.Dimension("vocab", 8)
    value = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    grads = np.random.default_rng(1).normal(size=(NUM_STEPS, 8, 6)).astype(np.float32)
    grads[:, 5:] = 0

    def training(dim: mtf.Dimension) -> InterpretedTraining:
        def step(mesh: mtf.Mesh, grad: mtf.Tensor) -> mtf.Tensor:
            mtf.get_variable(mesh, "w", [dim, D_FF], initializer=value, unpadded_shape=[vocab, D_FF])
            OPTIMIZERS[name].apply_grads([grad], mesh.graph.trainable_variables)
            return mtf.reduce_sum(grad)

        return InterpretedTraining(step, {"grad": mtf.TensorSpec([dim, D_FF])}, "all:1", "")

    padded, plain = training(stored), training(vocab)
    for grad in grads:
        padded.step(grad=grad)
        plain.step(grad=grad[:5])
    assert_close(padded["w"][:5], plain["w"], terms=NUM_STEPS * (5 + 6 + 4 * FUNCTION_TERMS))
    assert not padded["w"][5:].any()
