"""Similarities of vectors, and the contrastive loss of pairs of them."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike
from meshtf.layers.losses._operands import wide_operand, wide_pair

_OTHERS = "(others)"  # no layout rule can name it, so every core has all vectors that its own are compared with


@language_function
def cosine_similarity(x: mtf.Tensor, y: mtf.Tensor, dim: DimensionLike) -> mtf.Tensor:
    """The cosine of the angle between vectors over a dimension, broadcast by name. It is 0 if a vector is all zeros.

    Args:
      x: [..., dim], floating.
      y: [..., dim], floating.
      dim: the dimension of the vectors, or its name.

    Returns:
      The union of the dimensions without `dim`; float32, or float64 where x is.

    Raises:
      ShapeError: one of the two lacks `dim`, or sizes disagree.
      DtypeError: one of the two is not floating.

    Examples:
      >>> x = mtf.constant(mesh, [[1.0, 1.0], [0.0, 2.0]], "n:2 d:2")
      >>> value(mtf.layers.cosine_similarity(x, mtf.constant(mesh, [0.0, 1.0], "d:2"), "d")).round(3)
      array([0.707, 1.   ], dtype=float32)
    """
    first, second = wide_operand(x, "x"), wide_operand(y, "y")
    second = mtf.cast(second, first.dtype)
    return mtf.einsum([_unit(first, dim), _unit(second, dim)], reduced_dims=[first.shape[first.shape.axis(dim)]])


@language_function
def contrastive_loss(
    x: mtf.Tensor,
    y: mtf.Tensor,
    batch_dim: DimensionLike,
    dim: DimensionLike,
    *,
    scale: mtf.Tensor | float = 1 / 0.07,
    is_symmetric: bool = True,
    is_normalized: bool = False,
) -> mtf.Tensor:
    """The cross-entropy of finding each vector's partner in the batch by similarity (van den Oord et al. 2018).

    The partner of x at a place of the batch is y at that place, and all others are wrong. The symmetric loss is the
    mean of finding y for x and x for y (Radford et al. 2021). The whole batch is compared even if it is split: every
    core gets all of y, and keeps the similarities of its own part of x.

    Args:
      x: [batch_dim, dim], floating.
      y: floating, of the same dimensions.
      batch_dim: the dimension of the pairs, or its name.
      dim: the dimension of the vectors, or its name.
      scale: the factor of the cosines, one over the temperature: a number, or a learned scalar.
      is_symmetric: whether the loss also counts finding x for y.
      is_normalized: whether the vectors have length 1 already.

    Returns:
      [batch_dim], float32, or float64 where x is.

    Raises:
      ShapeError: the dimensions differ, or are not the two.
      DtypeError: one of the two is not floating.

    Examples:
      >>> images, texts = mtf.eye(mesh, ("batch", 4), ("d", 8)), mtf.eye(mesh, ("batch", 4), ("d", 8))
      >>> value(mtf.layers.contrastive_loss(images, texts, "batch", "d", scale=1.0)).round(3)
      array([0.744, 0.744, 0.744, 0.744], dtype=float32)
    """
    x, y = wide_pair(x, y, ("x", "y"))
    batch, vector = (x.shape[x.shape.axis(d)] for d in (batch_dim, dim))
    if set(x.shape) != {batch, vector} or batch == vector:
        raise ShapeError(
            f"x and y must have two dimensions, one of the pairs and one of the vectors; they have [{x.shape}], with "
            f'pairs along "{batch.name}" and vectors along "{vector.name}"'
        )
    if not is_normalized:
        x, y = _unit(x, vector), _unit(y, vector)
    factor = mtf.cast(scale, x.dtype) if isinstance(scale, mtf.Tensor) else scale
    others = mtf.Dimension(_OTHERS, batch.size)
    everyone = mtf.rename_dimension(y, batch.name, _OTHERS)
    logits = mtf.einsum([x, everyone], output_shape=[batch, others]) * factor
    partner = mtf.einsum([x, y], output_shape=[batch]) * factor
    loss = mtf.reduce_logsumexp(logits, others) - partner
    if not is_symmetric:
        return loss
    backward = mtf.rename_dimension(mtf.reduce_logsumexp(logits, batch), _OTHERS, batch.name) - partner
    return 0.5 * (loss + backward)


def _unit(x: mtf.Tensor, dim: DimensionLike) -> mtf.Tensor:
    """The vectors over a dimension with length 1; a vector of zeros stays as it is."""
    length = x.norm(dim)
    return x / mtf.where(mtf.equal(length, 0.0), 1.0, length)
