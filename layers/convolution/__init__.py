"""Convolution layers. Images are [..., spatial dimensions, channels], and any of these dimensions may be split."""

from meshtf.layers.convolution.plain import conv1d, conv2d, conv3d
from meshtf.layers.convolution.separable import separable_conv1d
from meshtf.layers.convolution.transposed import conv2d_transpose, conv3d_transpose

__all__ = ["conv1d", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "separable_conv1d"]
