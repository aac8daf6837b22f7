"""Products of the gradient that are over before the loop over layers, also where a compiler orders them."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.lowering.emit.xla.done_before_loops import done_before_loops
from meshtf.testing import assert_close, terms_of

BATCH, D_MODEL, VOCAB = mtf.Dimension("batch", 64), mtf.Dimension("d_model", 16), mtf.Dimension("vocab", 32)
LAYERS, INNER = mtf.Dimension("layers", 3), mtf.Dimension("inner", 16)
INPUTS = {"ids": mtf.TensorSpec([BATCH], np.int32)}


def train_step(ids: mtf.Tensor) -> mtf.Tensor:
    """A table of embeddings that is the logits' weights, too, around layers."""
    table = mtf.get_variable(ids.mesh, "table", [VOCAB, D_MODEL])
    weights = mtf.get_variable(ids.mesh, "weights", [LAYERS, INNER, D_MODEL])

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        hidden = mtf.rename_dimension(carried[0], D_MODEL.name, INNER.name)
        return [mtf.tanh(mtf.einsum([hidden, parts[0]], [BATCH, D_MODEL]))], []

    h = mtf.scan(layer, mtf.gather(table, ids, VOCAB), weights, LAYERS)[0][0]
    logits = mtf.einsum([h, table], [BATCH, VOCAB])
    loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(ids, VOCAB), VOCAB))
    for variable, gradient in zip([table, weights], mtf.gradients([loss], [table, weights]), strict=True):
        assert gradient is not None
        mtf.assign_sub(variable, 0.1 * gradient)
    return loss


@pytest.mark.quick
def test_the_last_weights_gradient_is_before_the_loop_of_gradients() -> None:
    found = done_before_loops(mtf.function(train_step, mtf.PlanMeshImpl("rows:2", "batch:rows"), INPUTS).lowering.plan)
    assert [[v.shape for v in values] for values in found.values()] == [[mtf.Shape([VOCAB, D_MODEL])]]


def test_a_compiler_is_told_of_them_and_values_are_the_same() -> None:
    ids = np.arange(64, dtype=np.int32) % 32
    step = mtf.function(train_step, mtf.TpuMeshImpl("rows:2", "batch:rows"), INPUTS)
    assert b"opt-barrier" in step.hlo()
    plain = mtf.function(train_step, mtf.SpmdMeshImpl("rows:2", "batch:rows"), INPUTS)
    for number in range(3):
        ours, theirs = step(ids=ids).numpy(), plain(ids=ids).numpy()
        assert_close(ours, theirs, terms=terms_of(plain._execution.plan), steps=number)
