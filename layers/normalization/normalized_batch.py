"""A batch minus its mean, divided by its standard deviation, with a custom gradient."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import Dims
from meshtf.layers.normalization._statistics import check_epsilon, dims_of


@language_function
def normalized_batch(
    x: mtf.Tensor, scale: mtf.Tensor, bias: mtf.Tensor, epsilon: float, kept_dims: Dims
) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, and the two statistics: `batch_norm` without averages.

    Nothing is assigned. So you can use it in a stack of layers or in a pipeline, whose layers return the statistics for
    you to average.

    Args:
      x: [..., kept_dims], floating. Statistics in 16 bits lose digits, so cast to float32 before.
      scale: its dimensions are among `kept_dims`.
      bias: likewise.
      epsilon: added to the variance.
      kept_dims: dimensions with statistics for every element, such as the channels.

    Returns:
      The normalized x, the mean [kept_dims] and the biased variance [kept_dims]. The statistics have no gradients.

    Raises:
      ShapeError: x lacks one of the dimensions; or scale or bias has another one.
      DtypeError: x is not floating.
      GraphError: the epsilon is below 0.

    Examples:
      >>> hidden = x.shape[-1:]
      >>> scale, bias = mtf.ones(mesh, hidden), mtf.zeros(mesh, hidden)
      >>> y, mean, variance = mtf.layers.normalized_batch(x, scale, bias, 1e-5, hidden)
      >>> y.shape, mean.shape, variance.shape
      (Shape[batch:4 hidden:8], Shape[hidden:8], Shape[hidden:8])
    """
    kept = dims_of(x, kept_dims)
    check_epsilon(epsilon)
    for name, parameter in (("scale", scale), ("bias", bias)):
        if others := [d for d in parameter.shape if not kept.has(d)]:
            raise ShapeError(
                f'{name} [{parameter.shape}] has dimension "{others[0].name}", which is not in kept_dims [{kept}]; '
                f"give it only dimensions from there"
            )
    y, mean, variance = _NormalizedBatch(scale, bias, epsilon, kept).of(x)
    return y, mean, variance


class _NormalizedBatch:
    """One call of `normalized_batch`.

    The gradient takes two sums over the batch: of dy, and of dy · (x - mean). They are also the gradients of bias and
    scale. Over a mesh they are reduced in one go. A gradient made step by step would need a third sum after them, of
    the gradients of x - mean. Its part by way of the variance is 0, because x - mean adds up to 0.

    The mean is rounded, so it may be off by more than a small deviation. The mean of x - mean says by how much. It is
    subtracted from the sums, and not from every element: that reads the batch once more, and writes nothing.
    """

    def __init__(self, scale: mtf.Tensor, bias: mtf.Tensor, epsilon: float, kept: mtf.Shape) -> None:
        self._scale, self._bias, self._epsilon = scale, bias, epsilon
        self._kept = kept  # the dimensions of statistics: channels, and perhaps groups before them

    def of(self, x: mtf.Tensor) -> list[mtf.Tensor]:
        """x normalized, and its mean and biased variance [kept], for averages whose gradients nobody takes."""
        return mtf.custom_gradient(self._forward, self._backward, [x, self._scale, self._bias])

    def _forward(self, x: mtf.Tensor, scale: mtf.Tensor, bias: mtf.Tensor) -> list[mtf.Tensor]:
        mean = mtf.reduce_mean(x, output_shape=self._kept)
        self._centred = x - mean
        self._rest = mtf.reduce_mean(self._centred, output_shape=self._kept)
        # mean((x - mean)^2) - rest^2 is the variance around the exact mean mean + rest.
        squares = mtf.reduce_mean(mtf.square(self._centred), output_shape=self._kept)
        variance = mtf.maximum(squares - mtf.square(self._rest), 0.0)
        self._inverse = mtf.rsqrt(variance + self._epsilon)
        slope = self._inverse * scale
        return [self._centred * slope + (bias - self._rest * slope), mean + self._rest, variance]

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> list[mtf.Tensor]:
        dy, centred, inverse = output_grads[0], self._centred, self._inverse
        assert dy is not None
        dbias = mtf.reduce_sum(dy, output_shape=self._kept)
        # `centred` is still off by `rest`, which the second term takes out of the sum.
        along = mtf.reduce_sum(dy * centred, output_shape=self._kept) - dbias * self._rest
        slope, share = inverse * self._scale, self._kept.size / centred.size
        steepness = along * mtf.square(inverse) * slope * -share
        dx = dy * slope + centred * steepness + (dbias * slope * -share - self._rest * steepness)
        found = zip((self._scale, self._bias), (along * inverse, dbias), strict=True)
        return [dx, *(mtf.reduce_sum(dparameter, output_shape=x.shape) for x, dparameter in found)]
