"""Attention to fewer positions: to a block and its neighbours, or to means of positions."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Shape
from meshtf.compat.mesh_tensorflow.layers.attention import (
    MASKED,
    attention_bias_local_block,
    dot_product_attention,
    multihead_attention_vars,
    rename_length_to_memory_length,
)
from meshtf.compat.mesh_tensorflow.layers.statistics import compress_mean
from meshtf.graph.tensor import Tensor


def local_self_attention_spatial_blocks(  # noqa: PLR0913  # the original's parameters
    query_antecedent: Tensor,
    kv_channels: language.Dimension,
    heads: language.Dimension,
    is_training: bool,
    memory_w_dim: language.Dimension | None = None,
    mask_right: bool = False,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    name: str | None = None,
) -> Tensor:
    """Attends to the position's block and the block before it. Unless `mask_right`, also to the block behind it.

    Beyond the first and the last block there are keys and values of zeros, which count in the softmax.

    Args:
      query_antecedent: [batch, blocks, block_length, io_channels].
      kv_channels: the dimension of a head.
      heads: the dimension of heads.
      is_training: ignored. Nothing is dropped.
      memory_w_dim: ignored. The memory's positions are called `memory_<block_length>`.
      mask_right: whether to hide later positions.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      name: the name of the scope. It has the variable `qkvo`.

    Returns:
      The shape of `query_antecedent`.
    """
    x = query_antecedent
    batch, blocks, length, channels = x.shape.dims
    with tf.compat.v1.variable_scope(name, default_name="multihead_attention"):
        wq, wk, wv, wo = multihead_attention_vars(
            x.mesh, heads, channels, kv_channels, master_dtype, slice_dtype, x.dtype
        )
        memory = mtf.rename_dimension(x, length.name, f"memory_{length.name}")
        positions = memory.shape.dims[-2]
        q = mtf.einsum([x, wq], Shape([batch, heads, blocks, length, kv_channels]))
        k, v = (mtf.einsum([memory, w], Shape([batch, heads, blocks, positions, kv_channels])) for w in (wk, wv))
        exchange = mtf.left_halo_exchange if mask_right else mtf.halo_exchange
        k, v = (exchange(t, blocks, positions, positions.size) for t in (k, v))
        mask = attention_bias_local_block(x.mesh, length, positions) if mask_right else None
        mask = None if mask is None else mtf.cast(mask, x.dtype)
        return mtf.einsum([dot_product_attention(q, k, v, mask, is_training), wo], x.shape)


def multihead_self_attention_memory_compressed(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    mask_right: bool,
    compression_factor: int,
    kv_channels: language.Dimension,
    heads: language.Dimension,
    is_training: bool,
    dropout: float = 0.0,
    dropout_broadcast_dims: Sequence[language.Dimension] | None = None,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    name: str = "multihead_attention",
) -> Tensor:
    """Attends to the means of `compression_factor` neighbouring positions, and to a key and a value of zeros.

    Args:
      x: [..., length, io_channels]. The positions must be called `length`.
      mask_right: whether to hide means that contain a later position.
      compression_factor: the number of positions of a mean.
      kv_channels: the dimension of a head.
      heads: the dimension of heads.
      is_training: whether weights are dropped.
      dropout: the rate of dropout of weights.
      dropout_broadcast_dims: dimensions along which they are dropped alike.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      name: the name of the scope. It has the variable `qkvo`.

    Returns:
      The shape of `x`.
    """
    *batch, length, channels = x.shape.dims
    with tf.compat.v1.variable_scope(name, default_name="compressed_attention"):
        wq, wk, wv, wo = multihead_attention_vars(
            x.mesh, heads, channels, kv_channels, master_dtype, slice_dtype, x.dtype
        )
        memory = rename_length_to_memory_length(compress_mean(x, length, compression_factor))
        means = memory.shape.dims[-2]
        q = mtf.einsum([x, wq], Shape([*batch, heads, length, kv_channels]))
        k, v = (mtf.einsum([memory, w], Shape([*batch, heads, means, kv_channels])) for w in (wk, wv))
        mask = None
        if mask_right:
            last = mtf.range(x.mesh, means, tf.int32) * compression_factor + (compression_factor - 1)
            mask = mtf.cast(mtf.greater(last, mtf.range(x.mesh, length, tf.int32)), x.dtype) * MASKED
        o = dot_product_attention(q, k, v, mask, is_training, dropout, dropout_broadcast_dims, extra_logit=0.0)
        return mtf.einsum([o, wo], x.shape)
