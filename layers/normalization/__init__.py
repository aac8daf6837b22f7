"""Normalization of activations and of weights. Statistics of narrower dtypes are computed in float32."""

from meshtf.layers.normalization.batch_norm import batch_norm
from meshtf.layers.normalization.group_norm import group_norm, instance_norm
from meshtf.layers.normalization.layer_norm import layer_norm, rms_norm
from meshtf.layers.normalization.normalized_batch import normalized_batch
from meshtf.layers.normalization.weight_norm import spectral_norm, weight_norm

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "normalized_batch",
    "rms_norm",
    "spectral_norm",
    "weight_norm",
]
