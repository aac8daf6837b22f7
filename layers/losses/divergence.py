"""The Kullback-Leibler divergence."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import DimensionLike
from meshtf.layers.losses._operands import wide_pair


@language_function
def kl_divergence(log_predictions: mtf.Tensor, targets: mtf.Tensor, dim: DimensionLike) -> mtf.Tensor:
    """The sum of targets · (log(targets) - log_predictions) over a dimension. A target of 0 adds 0.

    Args:
      log_predictions: [..., dim], floating: logarithms of probabilities, as from `mtf.log_softmax`.
      targets: floating, of the same dimensions: probabilities.
      dim: the dimension of the classes, or its name.

    Returns:
      [...], float32, or float64 where `log_predictions` are.

    Raises:
      ShapeError: the dimensions differ, or one lacks `dim`.
      DtypeError: one of the two is not floating.

    Examples:
      >>> logits, targets = mtf.zeros(mesh, "batch:2 classes:4"), mtf.constant(mesh, 0.25, "batch:2 classes:4")
      >>> value(mtf.layers.kl_divergence(mtf.log_softmax(logits, "classes"), targets, "classes"))
      array([0., 0.], dtype=float32)
    """
    log_p, p = wide_pair(log_predictions, targets, ("log_predictions", "targets"))
    classes = log_p.shape[log_p.shape.axis(dim)]
    # A term whose target is 0 is left out before the logarithm and before the product, which may both be infinite.
    is_there = mtf.greater(p, 0.0)
    log_ratio = mtf.log(mtf.where(is_there, p, 1.0)) - mtf.where(is_there, log_p, 0.0)
    return mtf.reduce_sum(mtf.where(is_there, p * log_ratio, 0.0), reduced_dim=classes)
