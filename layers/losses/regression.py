"""Losses of numbers and of scores, elementwise."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.layers.losses._operands import wide_pair


@language_function
def huber_loss(predictions: mtf.Tensor, targets: mtf.Tensor, delta: float = 1.0) -> mtf.Tensor:
    """Half the squared error up to `delta`, and beyond it the tangent there, elementwise (Huber 1964).

    Args:
      predictions: floating.
      targets: floating, of the same dimensions.
      delta: the error from which on the loss grows linearly.

    Returns:
      The shape of `predictions`; float32, or float64 where they are.

    Raises:
      ShapeError: the dimensions differ.
      DtypeError: one of the two is not floating.
      GraphError: `delta` is not positive.

    Examples:
      >>> error = mtf.constant(mesh, [0.5, -3.0], "n:2")
      >>> value(mtf.layers.huber_loss(error, mtf.zeros_like(error)))
      array([0.125, 2.5  ], dtype=float32)
    """
    if not delta > 0:
        raise GraphError(f"delta must be positive, and is {delta!r}")
    x, y = wide_pair(predictions, targets, ("predictions", "targets"))
    error = mtf.abs(x - y)
    near = mtf.minimum(error, delta)
    return near * (error - 0.5 * near)


@language_function
def hinge_loss(scores: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    """max(0, 1 - targets · scores), elementwise: 0 for a score that is right by a margin of 1.

    Args:
      scores: floating.
      targets: floating, of the same dimensions; 1 or -1.

    Returns:
      The shape of `scores`; float32, or float64 where they are.

    Raises:
      ShapeError: the dimensions differ.
      DtypeError: one of the two is not floating.

    Examples:
      >>> scores = mtf.constant(mesh, [2.0, -0.5], "n:2")
      >>> value(mtf.layers.hinge_loss(scores, mtf.ones_like(scores)))
      array([0. , 1.5], dtype=float32)
    """
    x, y = wide_pair(scores, targets, ("scores", "targets"))
    return mtf.relu(1.0 - y * x)
