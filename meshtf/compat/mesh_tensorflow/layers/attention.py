"""Attention over memories of keys and values, with additive masks."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.compat.mesh_tensorflow.layers.dense import without_dims
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

MASKED = -1e9
"""The number that a mask adds to a score that must not count."""


def rename_length_to_memory_length(
    x: Tensor, length_name: str = "length", memory_length_name: str = "memory_length"
) -> Tensor:
    """Renames the positions of x to those of a memory."""
    return mtf.rename_dimension(x, length_name, memory_length_name)


def multihead_attention_params(
    mesh: Mesh,
    heads: language.Dimension,
    io_channels: language.Dimension,
    kv_channels: language.Dimension,
    variable_dtype: VariableDType,
    combine: bool = False,
) -> list[Tensor]:
    """The projections of queries, keys, values and outputs, each [heads, io_channels, kv_channels].

    The variables are `q`, `k`, `v` and `o`. With `combine` they are one variable `qkvo`. Scores are not scaled: instead
    the projections of queries and keys start smaller.
    """
    qk = (io_channels.size**-0.5) * (kv_channels.size**-0.25)
    deviations = {"q": qk, "k": qk, "v": io_channels.size**-0.5, "o": (io_channels.size * heads.size) ** -0.5}
    shape = Shape([heads, io_channels, kv_channels])
    if combine:
        kinds = Dimension("qkvo", len(deviations))

        def start(sizes: Sequence[int], dtype: tf.DType = tf.float32, **_: object) -> tf.Tensor:
            scale = tf.reshape(tf.constant(list(deviations.values()), dtype), [-1, 1, 1, 1])
            return tf.random.normal(sizes, dtype=dtype) * scale

        return list(
            mtf.unstack(get_variable(mesh, "qkvo", Shape([kinds, *shape]), variable_dtype, initializer=start), kinds)
        )
    return [
        get_variable(
            mesh, name, shape, variable_dtype, initializer=tf.compat.v1.random_normal_initializer(stddev=deviation)
        )
        for name, deviation in deviations.items()
    ]


def multihead_attention_vars(
    mesh: Mesh,
    heads: language.Dimension,
    io_channels: language.Dimension,
    kv_channels: language.Dimension,
    master_dtype: tf.DType,
    slice_dtype: tf.DType,
    activation_dtype: tf.DType,
) -> list[Tensor]:
    """The projections of `multihead_attention_params` from one variable `qkvo`."""
    dtype = VariableDType(master_dtype, slice_dtype, activation_dtype)
    return multihead_attention_params(mesh, heads, io_channels, kv_channels, dtype, combine=True)


def dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    is_training: bool,
    dropout: float = 0.0,
    dropout_broadcast_dims: Sequence[language.Dimension] | None = None,
    extra_logit: float | Tensor | None = None,
) -> Tensor:
    """The mean of the values, weighted by the softmax of q . k. The scores are not scaled.

    Args:
      q: [..., length_q, depth_k].
      k: [..., length_kv, depth_k].
      v: [..., length_kv, depth_v].
      mask: a tensor that is added to the scores, or None.
      is_training: whether weights are dropped.
      dropout: the rate of dropout of weights.
      dropout_broadcast_dims: dimensions along which all weights share one dropout mask.
      extra_logit: a further score, whose value vector is zero.

    Returns:
      [..., length_q, depth_v].
    """
    length = k.shape.dims[-2]
    scores = mtf.einsum([q, k], Shape([*q.shape.dims[:-1], length]))
    if mask is not None:
        scores += mask
    weights = mtf.softmax(scores, length, extra_logit)
    if dropout:
        weights = mtf.dropout(
            weights, is_training, rate=dropout, noise_shape=without_dims(weights.shape, dropout_broadcast_dims)
        )
    return mtf.einsum([weights, v], Shape([*q.shape.dims[:-1], v.shape.dims[-1]]))


def multihead_attention(  # noqa: PLR0913  # the original's parameters
    query_antecedent: Tensor,
    memory_antecedent: Tensor | None,
    mask: Tensor | None,
    kv_channels: language.Dimension,
    heads: language.Dimension,
    is_training: bool,
    dropout: float = 0.0,
    dropout_broadcast_dims: Sequence[language.Dimension] | None = None,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    name: str = "multihead_attention",
) -> Tensor:
    """Attends with several heads: queries [..., length, io_channels], a memory [..., memory_length, io_channels].

    The variable is `<name>/qkvo`, as `multihead_attention_vars` makes it.

    Args:
      query_antecedent: the input of the queries.
      memory_antecedent: the input of keys and values. None means that of the queries, renamed to `memory_length`.
      mask: a tensor that is added to the scores. It may have dimensions of batch, heads, length and memory_length.
      kv_channels: the dimension of a head.
      heads: the dimension of heads.
      is_training: whether weights are dropped.
      dropout: the rate of dropout of weights.
      dropout_broadcast_dims: dimensions along which they are dropped alike.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      name: the name of their scope.

    Returns:
      The shape of `query_antecedent`.
    """
    *batch, length, _ = query_antecedent.shape.dims
    with tf.compat.v1.variable_scope(name, default_name="multihead_attention"):
        wq, wk, wv, wo = _given_or_made(None, query_antecedent, heads, kv_channels, master_dtype, slice_dtype)
        memory = memory_antecedent
        if memory is None:
            memory = rename_length_to_memory_length(query_antecedent, length.name)
        memory_shape = [*memory.shape.dims[:-2], heads, memory.shape.dims[-2], kv_channels]
        q = mtf.einsum([query_antecedent, wq], Shape([*batch, heads, length, kv_channels]))
        k = mtf.einsum([memory, wk], Shape(memory_shape))
        v = mtf.einsum([memory, wv], Shape(memory_shape))
        o = dot_product_attention(q, k, v, mask, is_training, dropout, dropout_broadcast_dims)
        return mtf.einsum([o, wo], query_antecedent.shape)


def multihead_self_attention_incremental(
    query_antecedent: Tensor,
    prev_k: Tensor,
    prev_v: Tensor,
    step_num: Tensor,
    master_dtype: tf.DType,
    slice_dtype: tf.DType,
    name: str = "multihead_attention",
) -> tuple[Tensor, Tensor, Tensor]:
    """Does one step of decoding: writes keys and values of this position to the memory and attends to the memory.

    Args:
      query_antecedent: [batch..., io_channels].
      prev_k: keys so far, [batch..., heads, memory_length, kv_channels], with zeros at later positions.
      prev_v: values so far, the same.
      step_num: int32 scalar, the position.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      name: the name of their scope.

    Returns:
      The result, [batch..., io_channels], and the keys and values with this position's.
    """
    *batch, _ = query_antecedent.shape.dims
    heads, memory_length, kv_channels = prev_k.shape.dims[-3:]
    with tf.compat.v1.variable_scope(name, default_name="multihead_attention"):
        wq, wk, wv, wo = _given_or_made(None, query_antecedent, heads, kv_channels, master_dtype, slice_dtype)
        q, k, v = (mtf.einsum([query_antecedent, w], Shape([*batch, heads, kv_channels])) for w in (wq, wk, wv))
        # The memory has zeros at this position, so adding the new entries writes them.
        here = mtf.one_hot(step_num, memory_length, dtype=prev_k.dtype)
        keys, values = prev_k + k * here, prev_v + v * here
        positions = mtf.range(query_antecedent.mesh, memory_length, tf.int32)
        mask = mtf.cast(mtf.greater(positions, step_num), q.dtype) * MASKED
        o = dot_product_attention(q, keys, values, mask, is_training=False)
        return mtf.einsum([o, wo], query_antecedent.shape), keys, values


def multihead_encdec_attention_incremental(
    query_antecedent: Tensor,
    wq: Tensor,
    wo: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    name: str = "multihead_attention",
) -> Tensor:
    """Does one step of decoding over an encoder's keys and values, [batch..., heads, memory_length, kv_channels]."""
    heads, kv_channels = k.shape.dims[-3], k.shape.dims[-1]
    batch = query_antecedent.shape.dims[:-1]
    q = mtf.einsum([query_antecedent, wq], Shape([*batch, heads, kv_channels]))
    return mtf.einsum([dot_product_attention(q, k, v, mask, is_training=False), wo], query_antecedent.shape)


def masked_local_attention_1d(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    kv_channels: language.Dimension,
    heads: language.Dimension,
    is_training: bool,
    window_size: int = 128,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    length_per_split: int | None = None,
    return_kv: list[Tensor] | None = None,
    params: Sequence[Tensor] | None = None,
    name: str | None = None,
) -> Tensor:
    """Attends causally within a block, and to the `window_size` positions before the block.

    The results are the original's numbers. The block length is the largest divisor of `length_per_split` up to 128 or
    `window_size`, whichever is larger. A position sees only positions less than a block length back. Before the first
    position there are keys and values of zeros, which count in the softmax. `meshtf.layers.local_attention` has an
    exact window.

    Args:
      x: [..., length, io_channels].
      kv_channels: the dimension of a head.
      heads: the dimension of heads.
      is_training: ignored. Nothing is dropped.
      window_size: the number of positions before a block that it sees.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      length_per_split: the number of positions on one core. None where the length is not split.
      return_kv: a list. Keys and values are appended to it, each [..., heads, length, kv_channels].
      params: the result of `multihead_attention_params`. None makes one variable `qkvo`.
      name: the name of its scope.

    Returns:
      The shape of `x`.
    """
    *batch, length, _ = x.shape.dims
    with tf.compat.v1.variable_scope(name, default_name="masked_local_attention_1d"):
        wq, wk, wv, wo = _given_or_made(params, x, heads, kv_channels, master_dtype, slice_dtype)
        q, k, v = (mtf.einsum([x, w], Shape([*batch, heads, length, kv_channels])) for w in (wq, wk, wv))
        if return_kv is not None:
            return_kv += [k, v]
        whole = length_per_split or length.size
        size = next(n for n in range(max(window_size, 128), 0, -1) if whole % n == 0)
        blocks = Dimension(length.name, length.size // size)
        own, memory = Dimension("query_block_length", size), Dimension("memory_block_length", size)
        q = mtf.reshape(q, Shape([*batch, heads, blocks, own, kv_channels]))
        k, v = (mtf.reshape(y, Shape([*batch, heads, blocks, memory, kv_channels])) for y in (k, v))
        k, v = (mtf.left_halo_exchange(y, blocks, memory, window_size) for y in (k, v))
        there = mtf.range(x.mesh, Dimension(memory.name, window_size + size), tf.int32)
        back = mtf.sub(mtf.range(x.mesh, own, tf.int32) + window_size, there, Shape([own, *there.shape]))
        unseen = mtf.logical_or(mtf.less(back, 0), mtf.greater_equal(back, size))
        o = dot_product_attention(q, k, v, mtf.cast(unseen, x.dtype) * MASKED, is_training)
        return mtf.einsum([mtf.reshape(o, Shape([*batch, heads, length, kv_channels])), wo], x.shape)


def masked_local_attention_1d_incremental(
    x: Tensor,
    prev_k: Tensor,
    prev_v: Tensor,
    step_num: Tensor,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    params: Sequence[Tensor] | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Does one step of decoding over the last positions.

    This position takes the place of the oldest one in the memory.

    Args:
      x: [batch..., io_channels].
      prev_k: keys so far, [batch..., heads, window_length, kv_channels]; zeros where there are none yet. The zeros
        count.
      prev_v: values so far, the same.
      step_num: int32 scalar, the position.
      master_dtype: the dtype of variables in files.
      slice_dtype: the dtype of variables on the mesh.
      params: the result of `multihead_attention_params`. None makes one variable `qkvo`.
      name: the name of its scope.

    Returns:
      The result, [batch..., io_channels], and the keys and values with this position's.
    """
    *batch, _ = x.shape.dims
    heads, window, kv_channels = prev_k.shape.dims[-3:]
    with tf.compat.v1.variable_scope(name, default_name="masked_local_attention_1d"):
        wq, wk, wv, wo = _given_or_made(params, x, heads, kv_channels, master_dtype, slice_dtype)
        q, k, v = (mtf.einsum([x, w], Shape([*batch, heads, kv_channels])) for w in (wq, wk, wv))
        here = mtf.equal(mtf.range(x.mesh, window, tf.int32), mtf.mod(step_num, window.size))
        keys, values = (mtf.where(here, new, old, prev_k.shape) for new, old in ((k, prev_k), (v, prev_v)))
        o = dot_product_attention(q, keys, values, None, is_training=False)
        return mtf.einsum([o, wo], x.shape), keys, values


def _given_or_made(
    params: Sequence[Tensor] | None,
    x: Tensor,
    heads: language.Dimension,
    kv_channels: language.Dimension,
    master_dtype: tf.DType,
    slice_dtype: tf.DType,
) -> Sequence[Tensor]:
    if params is not None:
        return params
    channels = x.shape.dims[-1]
    return multihead_attention_vars(x.mesh, heads, channels, kv_channels, master_dtype, slice_dtype, x.dtype)


def attention_mask_ignore_padding(inputs: Tensor, dtype: tf.DType = tf.float32) -> Tensor:
    """Returns -1e9 where an id of a memory is 0, [..., memory_length].

    The positions of `inputs` must be called `length`.
    """
    return rename_length_to_memory_length(mtf.cast(mtf.equal(inputs, 0), dtype) * MASKED)


def attention_mask_autoregressive(query_pos: Tensor, dtype: tf.DType = tf.float32) -> Tensor:
    """Returns -1e9 where a position of the memory is later than the query's, [..., length, memory_length]."""
    return mtf.cast(mtf.less(query_pos, rename_length_to_memory_length(query_pos)), dtype) * MASKED


def attention_mask_same_segment(
    query_segment: Tensor, memory_segment: Tensor | None = None, dtype: tf.DType = tf.float32
) -> Tensor:
    """Returns -1e9 where query and memory belong to different segments, [..., length, memory_length]."""
    own = query_segment if memory_segment is None else memory_segment
    return mtf.cast(mtf.not_equal(query_segment, rename_length_to_memory_length(own)), dtype) * MASKED


def attention_bias_local_block(
    mesh: Mesh, block_length: language.Dimension, memory_length: language.Dimension, dtype: tf.DType = tf.int32
) -> Tensor:
    """Returns -1e9 where a position of the memory is later than the query's, [block_length, memory_length] float32.

    The memory is the block before followed by the block itself, so it is twice as long as a block, whatever size
    `memory_length` has.

    Args:
      mesh: the mesh of the result.
      block_length: the positions of the queries in their block.
      memory_length: the dimension whose name the memory has.
      dtype: ignored. The original compares positions in it.
    """
    memory = Dimension(memory_length.name, 2 * block_length.size)
    queries = mtf.range(mesh, block_length, tf.int32) + block_length.size
    later = mtf.less(queries, mtf.range(mesh, memory, tf.int32), Shape([block_length, memory]))
    return mtf.cast(later, tf.float32) * MASKED
