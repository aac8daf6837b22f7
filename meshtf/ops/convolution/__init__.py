"""Convolutions and pooling over named dimensions, under any layout."""

from meshtf.ops.convolution.functions import (
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    convolution,
    depthwise_conv1d,
    depthwise_conv2d,
    depthwise_conv3d,
)
from meshtf.ops.convolution.gradients import (
    conv2d_backprop_filter,
    conv2d_backprop_input,
    conv2d_transpose_backprop_filter,
    conv2d_transpose_backprop_input,
    conv3d_backprop_filter,
    conv3d_backprop_input,
    conv3d_transpose_backprop_filter,
    conv3d_transpose_backprop_input,
)
from meshtf.ops.convolution.pooling import avg_pool, max_pool
from meshtf.ops.convolution.pooling_gradient import pool_backprop

__all__ = [
    "avg_pool",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "conv2d_transpose_backprop_filter",
    "conv2d_transpose_backprop_input",
    "conv3d",
    "conv3d_backprop_filter",
    "conv3d_backprop_input",
    "conv3d_transpose",
    "conv3d_transpose_backprop_filter",
    "conv3d_transpose_backprop_input",
    "convolution",
    "depthwise_conv1d",
    "depthwise_conv2d",
    "depthwise_conv3d",
    "max_pool",
    "pool_backprop",
]
