"""Normalization over a batch, with moving averages for evaluation."""

from __future__ import annotations

import numbers

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, ShapeError
from meshtf.layers._operands import Dims
from meshtf.layers.initializers import Initializer
from meshtf.layers.normalization._statistics import check_epsilon, dims_of, parameter, widened
from meshtf.layers.normalization.normalized_batch import normalized_batch


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

    In training, the statistics are those of x, over the whole mesh and all dimensions except `channel_dims`. The
    program assigns moving averages of them. In evaluation, the statistics are the moving averages. As published, x is
    normalised by the biased variance, and the unbiased one is averaged.

    If a batch is computed in parts (`mtf.serialize_training_step`), each part has its own statistics, and moves the
    averages. In a stack of layers (`mtf.layer_stack`) that is not unrolled, nothing can be assigned.

    With `group_size`, each group of neighbours along x's first dimension has its own statistics (Ying et al. 2018,
    "Image Classification at Supercomputer Scale"). On thousands of cores a sum over a few of them takes much less time
    than a sum over all. The first dimension, say `batch`, becomes `batch_groups` and `batch_group` for this. If the
    layout splits `batch`, give both a rule: "batch_groups:data" if a group is on one core; with
    `axis_parts="data:64x16"`, "batch_groups:data.0;batch_group:data.1" if it is on 16. No rule changes a result.

    Args:
      x: [..., channel_dims], floating, its dimensions in any order.
      is_training: whether the statistics are those of x.
      momentum: the share of a moving average that each step keeps, such as 0.9.
      epsilon: added to the variance.
      channel_dims: dimensions with statistics, scale and bias for every element; by default x's last.
      init_zero: whether `scale` starts at 0 and not at 1, so that a residual branch adds nothing at first.
      name: the scope of `scale`, `bias`, `moving_mean` and `moving_variance`, each [channel_dims] and the last two not
        trainable; by default "batch_norm", made unique.
      group_size: the number of neighbours along x's first dimension that share statistics, a divisor of its size. The
        averages move towards the mean of all groups' statistics. None: there is one group.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks a channel dimension, or `group_size` does not divide the first one.
      DtypeError: x is not floating.
      GraphError: the momentum is not in [0, 1], or the epsilon is below 0.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.batch_norm(image, is_training=True, momentum=0.9).shape
      Shape[batch:4 height:8 width:8 channels:3]
      >>> [v.shape for v in mesh.graph.trainable_variables]
      [Shape[channels:3], Shape[channels:3]]
    """
    channels = dims_of(x, x.shape[-1:] if channel_dims is None else channel_dims)
    check_epsilon(epsilon)
    if not isinstance(momentum, numbers.Real) or not 0.0 <= momentum <= 1.0:
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
            y, mean, variance = normalized_batch(grouped, scale, bias, epsilon, kept)
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
        raise ShapeError(
            f'the first dimension, "{batch.name}", is cut into groups, so it cannot be a channel dimension'
        )
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 1 or batch.size % group_size:
        raise ShapeError(f"group_size must divide {batch}, and is {group_size!r}")
    parts = [(f"{batch.name}_groups", batch.size // group_size), (f"{batch.name}_group", group_size)]
    return x.unflatten(batch, parts)


def _moving_average(like: mtf.Tensor, name: str, shape: mtf.Shape, initializer: Initializer) -> mtf.Tensor:
    # A narrow dtype would round small steps towards a statistic away, so the dtype is not that of other variables.
    return mtf.get_variable(like.mesh, name, shape, dtype=like.dtype, initializer=initializer, trainable=False)


def _move(average: mtf.Tensor, value: mtf.Tensor, momentum: float) -> None:
    mtf.assign_add(average, (value - mtf.read_variable(average)) * (1.0 - momentum))
