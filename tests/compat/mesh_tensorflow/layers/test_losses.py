"""The original's losses refuse targets of other dimensions than the logits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf

BATCH, LENGTH, VOCAB = mtf.Dimension("batch", 4), mtf.Dimension("length", 3), mtf.Dimension("vocab", 5)


@pytest.mark.parametrize(
    "targets",
    [
        lambda mesh: mtf.zeros(mesh, [BATCH], tf.int32),
        lambda mesh: mtf.zeros(mesh, [BATCH, LENGTH, mtf.Dimension("heads", 2)], tf.int32),
        lambda mesh: mtf.zeros(mesh, [LENGTH, VOCAB]),
    ],
)
def test_targets_of_other_dimensions_are_not_broadcast(targets: Callable[[mtf.Mesh], mtf.Tensor]) -> None:
    mesh = mtf.Mesh(mtf.Graph(), "mesh")
    logits = mtf.zeros(mesh, [BATCH, LENGTH, VOCAB])
    with pytest.raises(ValueError, match=r"need the dimensions of the logits, \[batch:4 length:3 vocab:5\]"):
        mtf.layers.softmax_cross_entropy_with_logits(logits, targets(mesh), VOCAB)


def test_right_targets_in_any_order() -> None:
    mesh = mtf.Mesh(mtf.Graph(), "mesh")
    logits = mtf.zeros(mesh, [BATCH, LENGTH, VOCAB])
    for wanted in (mtf.zeros(mesh, [LENGTH, BATCH], tf.int32), mtf.zeros(mesh, [VOCAB, LENGTH, BATCH])):
        loss = mtf.layers.softmax_cross_entropy_with_logits(logits, wanted, VOCAB)
        assert set(loss.shape.dims) == {BATCH, LENGTH}
    with pytest.raises(ValueError, match="need the dimensions of the logits"):
        mtf.layers.sigmoid_cross_entropy_with_logits(logits, mtf.zeros(mesh, [BATCH]))
