"""Normalization over a batch, with moving averages for evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, ShapeError
from meshtf.layers._operands import Dims
from meshtf.layers.initializers import Initializer
from meshtf.layers.normalization._statistics import dims_of, parameter, widened


@language_function
def batch_norm(
    x: mtf.Tensor,
    is_training: bool,
    momentum: float,
    epsilon: float = 1e-9,
    channel_dims: Dims | None = None,
    init_zero: bool = False,
    name: str | None = None,
    *,
    group_size: int | None = None,
) -> mtf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, with statistics over the batch (Ioffe & Szegedy 2015).

    In training, the statistics are those of x, over all of the mesh and all dimensions but `channel_dims`. The program
    assigns moving averages of them. In evaluation, the statistics are the moving averages. As published, x is
    normalised by the biased variance, and the unbiased one is averaged.

    If a batch is computed in parts (`mtf.serialize_training_step`), each part has statistics of its own, and moves the
    averages. In a stack of layers (`mtf.layer_stack`) that is not unrolled, nothing can be assigned.

    With `group_size`, neighbours along x's first dimension have statistics of their own (Ying et al. 2018, "Image
    Classification at Supercomputer Scale"). On thousands of cores a sum over a few of them takes much less time than a
    sum over all. The first dimension, say `batch`, becomes `batch_groups` and `batch_group` for this. Give both a rule
    where the layout splits `batch`: "batch_groups:data" if a group is on one core; with `axis_parts="data:64x16"`,
    "batch_groups:data.0;batch_group:data.1" if it is on 16. No rule changes a result.

    Args:
      x: [..., channel_dims], floating, its dimensions in any order.
      is_training: whether the statistics are those of x.
      momentum: the share of a moving average that a step leaves in it, such as 0.9.
      epsilon: added to the variance.
      channel_dims: dimensions with statistics, scale and bias for every element; by default x's last.
      init_zero: whether `scale` starts at 0 and not at 1, so that a residual branch adds nothing at first.
      name: the scope of `scale`, `bias`, `moving_mean` and `moving_variance`, each [channel_dims] and the last two not
        trainable; by default "batch_norm", made unique.
      group_size: the number of neighbours along x's first dimension that have statistics together, a divisor of its
        size. The averages move towards the mean of all groups' statistics. None: there is one group.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks a channel dimension, or `group_size` does not divide the first one.
      DtypeError: x is not floating.
      GraphError: the momentum is not in [0, 1].

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.batch_norm(image, is_training=True, momentum=0.9).shape
      Shape[batch:4 height:8 width:8 channels:3]
      >>> [v.shape for v in mesh.graph.trainable_variables]
      [Shape[channels:3], Shape[channels:3]]
    """
    channels = dims_of(x, x.shape[-1:] if channel_dims is None else channel_dims)
    if not 0.0 <= momentum <= 1.0:
        raise GraphError(f"momentum must be in [0, 1], and is {momentum!r}")
    with mtf.variable_scope(name, default_name="batch_norm"):
        wide = widened(x)
        moving_mean = _moving_average(wide, "moving_mean", channels, mtf.zeros)
        moving_variance = _moving_average(wide, "moving_variance", channels, mtf.ones)
        scale = parameter(wide, "scale", channels, mtf.zeros if init_zero else mtf.ones)
        bias = parameter(wide, "bias", channels, mtf.zeros)
        if is_training:
            grouped = wide if group_size is None else _in_groups(wide, group_size, channels)
            kept = channels if group_size is None else grouped.shape[:1] + channels
            y, mean, variance = _NormalizedBatch(scale, bias, epsilon, kept).of(grouped)
            y = y if group_size is None else y.reshape(wide.shape)
            count = x.size // kept.size
            _move(moving_mean, mtf.reduce_mean(mean, output_shape=channels), momentum)
            # n / (n - 1) makes the variance of n samples unbiased.
            unbiased = variance * (count / max(1, count - 1))
            _move(moving_variance, mtf.reduce_mean(unbiased, output_shape=channels), momentum)
        else:
            inverse = mtf.rsqrt(mtf.read_variable(moving_variance) + epsilon)
            y = (wide - mtf.read_variable(moving_mean)) * (inverse * scale) + bias
        return y.astype(x.dtype)


def _in_groups(x: mtf.Tensor, group_size: int, channels: mtf.Shape) -> mtf.Tensor:
    """x with its first dimension as groups, and as places in a group."""
    batch = x.shape[0]
    if channels.has(batch):
        raise ShapeError(f'groups are along the first dimension, "{batch.name}", which is a channel dimension')
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1 or batch.size % group_size:
        raise ShapeError(f"group_size must divide {batch}, and is {group_size!r}")
    parts = [(f"{batch.name}_groups", batch.size // group_size), (f"{batch.name}_group", group_size)]
    return x.unflatten(batch, parts)


class _NormalizedBatch:
    """A batch minus its mean, divided by its standard deviation, in one call of `batch_norm` with a gradient of its
    own.

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
        channels = self._scale.shape
        return [dx, *(mtf.reduce_sum(dparameter, output_shape=channels) for dparameter in (along * inverse, dbias))]


def _moving_average(like: mtf.Tensor, name: str, shape: mtf.Shape, initializer: Initializer) -> mtf.Tensor:
    # A narrow dtype would round small steps towards a statistic away, so the dtype is not that of other variables.
    return mtf.get_variable(like.mesh, name, shape, dtype=like.dtype, initializer=initializer, trainable=False)


def _move(average: mtf.Tensor, value: mtf.Tensor, momentum: float) -> None:
    mtf.assign_add(average, (value - mtf.read_variable(average)) * (1.0 - momentum))
