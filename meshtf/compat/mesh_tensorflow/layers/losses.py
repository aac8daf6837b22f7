"""Losses of classifiers and language models."""

from __future__ import annotations

import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor


def softmax_cross_entropy_with_logits(
    logits: Tensor, targets: Tensor, vocab_dim: Dimension, z_loss: float = 0.0
) -> Tensor:
    """The cross entropy of each position, [logits.shape - vocab_dim].

    Args:
      logits: [..., vocab_dim].
      targets: ids of the classes, integers, or a distribution over `vocab_dim`.
      vocab_dim: the dimension of the classes.
      z_loss: the factor of a further loss, the squared logarithm of the partition function.

    Raises:
      ShapeError: the logits lack `vocab_dim`, or the targets have other dimensions.
    """
    if targets.dtype.is_integer and vocab_dim not in targets.shape.dims:
        targets = mtf.one_hot(targets, vocab_dim, dtype=logits.dtype)
    _check_alike(logits, targets)
    log_z = mtf.reduce_logsumexp(logits, vocab_dim)
    loss = mtf.reduce_sum((log_z - logits) * mtf.cast(targets, logits.dtype), reduced_dim=vocab_dim)
    return loss + z_loss * mtf.square(log_z) if z_loss else loss


def sigmoid_cross_entropy_with_logits(logits: Tensor, targets: Tensor) -> Tensor:
    """The binary cross entropy of each element.

    Raises:
      ShapeError: the targets do not have the dimensions of the logits.
    """
    _check_alike(logits, targets)
    return mtf.relu(logits) - logits * targets + mtf.softplus(-mtf.abs(logits))


def weights_nonzero(targets: Tensor, dtype: tf.DType = tf.float32) -> Tensor:
    """Returns 1 where a target is not 0, which is the padding, and else 0."""
    return mtf.cast(mtf.not_equal(targets, 0), dtype)


def _check_alike(logits: Tensor, targets: Tensor) -> None:
    if set(targets.shape.dims) != set(logits.shape.dims):
        raise ShapeError(
            f"targets [{targets.shape}], with the classes, need the dimensions of the logits, [{logits.shape}]"
        )
