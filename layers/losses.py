"""Losses."""

from __future__ import annotations

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.sites import language_function


@language_function
def softmax_cross_entropy_with_logits(
    logits: mtf.Tensor, targets: mtf.Tensor, vocab_dim: mtf.Dimension, z_loss: float = 0.0
) -> mtf.Tensor:
    """Cross-entropy of the softmax of `logits` over `vocab_dim`, with targets soft or hard.

    The normaliser is a log-sum-exp about the maximum, exact also where `vocab_dim` is split.

    Args:
      logits: [..., vocab_dim], floating.
      targets: floating, [..., vocab_dim], a distribution; or integers, [...], each the right index (an index outside
        `vocab_dim`, such as -1 for padding, gives a loss of 0).
      vocab_dim: the dimension of the classes.
      z_loss: coefficient of log(Z)^2, which keeps the normaliser Z near 1 (a common choice is 1e-4).

    Returns:
      [...], of the type of `logits`.

    Raises:
      ShapeError: the two do not have the dimensions above.
      DtypeError: `logits` are not floating, or `targets` neither floating nor integer.
    """
    _check(logits, targets, vocab_dim)
    if targets.dtype.is_integer:
        targets = mtf.one_hot(targets, vocab_dim, dtype=logits.dtype)
    log_z = mtf.reduce_logsumexp(logits, vocab_dim)
    log_probabilities = logits - log_z
    loss = mtf.negative(mtf.reduce_sum(log_probabilities * mtf.cast(targets, logits.dtype), reduced_dim=vocab_dim))
    return loss + mtf.square(log_z) * z_loss if z_loss else loss


def _check(logits: mtf.Tensor, targets: mtf.Tensor, vocab_dim: mtf.Dimension) -> None:
    if not logits.dtype.is_floating:
        raise DtypeError(f"logits must be floating, not {logits.dtype.name}")
    if not (targets.dtype.is_integer or targets.dtype.is_floating):
        raise DtypeError(f"targets must be floating (a distribution) or integer (an index), not {targets.dtype.name}")
    wanted = logits.shape - [vocab_dim]
    if targets.dtype.is_floating:
        wanted += [vocab_dim]
    if set(targets.shape) != set(wanted):
        raise ShapeError(f"targets of type {targets.dtype.name} need the dimensions [{wanted}], not [{targets.shape}]")
