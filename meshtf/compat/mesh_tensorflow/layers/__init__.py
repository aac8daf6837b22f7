"""Layers with the original's parameters.

Variables have its names and dimensions, so its checkpoints can be restored.
"""

from typing import TYPE_CHECKING

from meshtf.compat.mesh_tensorflow._refused import refusing
from meshtf.compat.mesh_tensorflow.layers.attention import (
    attention_bias_local_block,
    attention_mask_autoregressive,
    attention_mask_ignore_padding,
    attention_mask_same_segment,
    dot_product_attention,
    masked_local_attention_1d,
    masked_local_attention_1d_incremental,
    multihead_attention,
    multihead_attention_params,
    multihead_attention_vars,
    multihead_encdec_attention_incremental,
    multihead_self_attention_incremental,
    rename_length_to_memory_length,
)
from meshtf.compat.mesh_tensorflow.layers.convolution import (
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv2d_transpose,
    conv2d_with_blocks,
    conv3d,
    conv3d_transpose,
    conv3d_with_blocks,
    max_pool2d,
    max_pool3d,
    separable_conv1d,
)
from meshtf.compat.mesh_tensorflow.layers.dense import (
    DenseInitializer,
    VarianceScalingInitializer,
    dense,
    dense_product,
    dense_relu_dense,
    get_dense_kernel_weights,
)
from meshtf.compat.mesh_tensorflow.layers.embedding import embedding, embedding_weights
from meshtf.compat.mesh_tensorflow.layers.losses import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    weights_nonzero,
)
from meshtf.compat.mesh_tensorflow.layers.normalization import batch_norm, layer_norm
from meshtf.compat.mesh_tensorflow.layers.shortened_attention import (
    local_self_attention_spatial_blocks,
    multihead_self_attention_memory_compressed,
)
from meshtf.compat.mesh_tensorflow.layers.statistics import (
    clip_activation_gradient,
    compress_mean,
    corr,
    multiplicative_jitter,
    unit_scaling_convention,
    us_einsum,
)

__all__ = [
    "DenseInitializer",
    "VarianceScalingInitializer",
    "attention_bias_local_block",
    "attention_mask_autoregressive",
    "attention_mask_ignore_padding",
    "attention_mask_same_segment",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "clip_activation_gradient",
    "compress_mean",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv2d_with_blocks",
    "conv3d",
    "conv3d_transpose",
    "conv3d_with_blocks",
    "corr",
    "dense",
    "dense_product",
    "dense_relu_dense",
    "dot_product_attention",
    "embedding",
    "embedding_weights",
    "get_dense_kernel_weights",
    "layer_norm",
    "local_self_attention_spatial_blocks",
    "masked_local_attention_1d",
    "masked_local_attention_1d_incremental",
    "max_pool2d",
    "max_pool3d",
    "multihead_attention",
    "multihead_attention_params",
    "multihead_attention_vars",
    "multihead_encdec_attention_incremental",
    "multihead_self_attention_incremental",
    "multihead_self_attention_memory_compressed",
    "multiplicative_jitter",
    "rename_length_to_memory_length",
    "separable_conv1d",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "unit_scaling_convention",
    "us_einsum",
    "weights_nonzero",
]

_BLOCKS = "mtf.layers.conv2d_transpose and conv3d_transpose split image dimensions: give them the image, not in blocks"

_REPLACEMENTS = {
    "conv2d_transpose_with_blocks": _BLOCKS,
    "conv3d_transpose_with_blocks": _BLOCKS,
    "local_2d_self_attention_spatial_blocks": "meshtf.layers.dot_product_attention, which takes any mask",
    "reversible_half_residual_and_swap": "mtf.recompute_grad keeps as little; or meshtf.layer_stack(recompute=...)",
    "attention_bias_local_2d_block": "mtf.logical_and of comparisons of mtf.range, times -1e9",
    "local_1d_halo_exchange": "mtf.halo_exchange",
    "local_2d_halo_exchange": "mtf.halo_exchange, along one dimension after the other",
    "annealed_dropout": "mtf.dropout with a rate known now; no rate is read while a program runs",
}

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = refusing(__name__, __all__, _REPLACEMENTS)
