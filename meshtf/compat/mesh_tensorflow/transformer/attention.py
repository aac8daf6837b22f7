"""Projections and attention of a Transformer. Variables have the original's names and dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow.layers.attention import MASKED
from meshtf.compat.mesh_tensorflow.layers.dense import without_dims
from meshtf.compat.mesh_tensorflow.transformer.attention_params import AttentionParams
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

__all__ = [
    "AttentionParams",
    "attention",
    "attention_params_simple",
    "local_attention_1d",
    "maybe_reshape_attention_input_for_2d_sharding",
    "visibility_mask_to_attention_bias",
]


class Trains(Protocol):
    """The part of a context that attention reads."""

    @property
    def train(self) -> bool:
        """Whether weights are dropped."""
        ...


def visibility_mask_to_attention_bias(visible: Tensor, dtype: tf.DType) -> Tensor:
    """Returns 0 where a position is seen and -1e9 elsewhere, to be added to scores."""
    return mtf.cast(mtf.logical_not(visible), dtype) * MASKED


def maybe_reshape_attention_input_for_2d_sharding(
    context: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, unsplittable_dims: Sequence[language.Dimension]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Returns the tensors unchanged, because only the layout decides how mesh axes are used."""
    return q, k, v, bias


def attention_params_simple(
    mesh: Mesh,
    io_dim: language.Dimension,
    kv_dim: language.Dimension,
    heads_dim: language.Dimension,
    variable_dtype: VariableDType,
) -> AttentionParams:
    """Returns `AttentionParams` with as many heads for keys and values as for queries, all with the same channels."""
    return AttentionParams(mesh, io_dim, io_dim, io_dim, kv_dim, kv_dim, [heads_dim], [heads_dim], variable_dtype)


def attention(  # noqa: PLR0913  # the original's parameters
    q: Tensor,
    k: Tensor,
    v: Tensor,
    memory_length_dim: language.Dimension,
    key_dim: language.Dimension,
    value_dim: language.Dimension,
    bias: Tensor | None = None,
    dropout_rate: float = 0.0,
    dropout_broadcast_dims: Sequence[language.Dimension] | None = None,
    extra_logit: float | Tensor | None = None,
    context: Trains | None = None,
    float32_logits: bool = True,
    z_loss_coeff: float | None = None,
) -> Tensor:
    """The mean of the values, weighted by the softmax of q . k + bias. The scores are not scaled.

    Args:
      q: [..., key_dim].
      k: [..., memory_length_dim, key_dim].
      v: [..., memory_length_dim, value_dim].
      memory_length_dim: the positions of the memory.
      key_dim: the channels of queries and keys.
      value_dim: the channels of values and of the result.
      bias: a tensor that is added to the scores.
      dropout_rate: the rate of dropout of weights, unless `context.train` is false.
      dropout_broadcast_dims: dimensions along which they are dropped alike.
      extra_logit: a further score, whose value is zeros.
      context: its `train` says whether to drop weights. None means yes, as in versions that did not read it.
      float32_logits: whether to compute the scores and the softmax in float32.
      z_loss_coeff: a factor of the mean squared logarithm of the softmax's denominator. It is added to
        `context.losses`.

    Returns:
      [..., value_dim], in the order of q, summed over dimensions that only keys and values have.
    """
    rest = [d for d in q.shape if d != key_dim]
    if float32_logits:
        q, k = mtf.cast(q, tf.float32), mtf.cast(k, tf.float32)
    scores = mtf.einsum([q, k], reduced_dims=[key_dim])
    if bias is not None:
        scores += mtf.cast(bias, scores.dtype)
    if z_loss_coeff is not None and context is not None and context.train:
        _add_z_loss(context, scores, memory_length_dim, z_loss_coeff, v.dtype)
    weights = mtf.cast(mtf.softmax(scores, memory_length_dim, extra_logit), v.dtype)
    is_training = context is None or context.train
    kept = without_dims(weights.shape, dropout_broadcast_dims)
    weights = mtf.dropout(weights, is_training, rate=dropout_rate, noise_shape=kept)
    return mtf.einsum([weights, v], Shape([*rest, value_dim]))


def _add_z_loss(context: Any, scores: Tensor, memory: language.Dimension, coefficient: float, dtype: tf.DType) -> None:
    log_z = mtf.reduce_logsumexp(scores, memory)
    loss = mtf.reduce_mean(mtf.square(log_z) * mtf.cast(context.nonpadding, log_z.dtype))
    loss *= coefficient / max(context.num_microbatches or 1, 1)
    context.losses.append(mtf.cast(loss, dtype))


def local_attention_1d(  # noqa: PLR0913  # the original's parameters
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    length_dim: language.Dimension,
    key_dim: language.Dimension,
    value_dim: language.Dimension,
    fully_autoregressive: bool = True,
    length_dim_num_splits: int = 1,
    radius: int = 128,
    sequence_id: Tensor | int | None = 1,
    write_priority: Tensor | None = None,
    read_priority: Tensor | None = None,
    attention_kwargs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Attends to the last `radius` positions, including its own. Unless autoregressive, it also sees `radius` ahead.

    It computes all scores and masks those outside the window. So it has the original's results but needs more memory.
    `meshtf.layers.local_attention` computes only the scores inside the window, in any layout.

    Args:
      q: [..., length_dim, key_dim].
      k: [..., length_dim, key_dim].
      v: [..., length_dim, value_dim]. None means that the keys are the values.
      length_dim: positions.
      key_dim: the channels of queries and keys.
      value_dim: the channels of values and of the result.
      fully_autoregressive: whether to hide all positions ahead.
      length_dim_num_splits: ignored. The layout says how positions are split.
      radius: the number of positions seen in each direction.
      sequence_id: a position sees only positions with its own number. None and a plain number hide nothing.
      write_priority: with `read_priority`, hides further positions. A position sees only those whose `write_priority`
        is no larger than its own `read_priority`.
      read_priority: see `write_priority`.
      attention_kwargs: further arguments of `attention`.

    Returns:
      [..., length_dim, value_dim].
    """
    memory = Dimension(f"memory_{length_dim.name}", length_dim.size)
    here, there = (mtf.range(q.mesh, dim, tf.int32) for dim in (length_dim, memory))
    distance = mtf.sub(here, there, output_shape=Shape([length_dim, memory]))
    ahead = 0 if fully_autoregressive else radius
    seen = mtf.logical_and(mtf.less(distance, radius), mtf.greater_equal(distance, -ahead))
    if read_priority is not None and write_priority is not None:
        written = mtf.rename_dimension(write_priority, length_dim.name, memory.name)
        seen = mtf.logical_and(seen, mtf.greater_equal(read_priority, written))
    if isinstance(sequence_id, Tensor):
        other = mtf.rename_dimension(sequence_id, length_dim.name, memory.name)
        seen = mtf.logical_and(seen, mtf.equal(sequence_id, other))
    bias = visibility_mask_to_attention_bias(seen, tf.float32)
    k, v = (mtf.rename_dimension(x, length_dim.name, memory.name) for x in (k, k if v is None else v))
    return attention(q, k, v, memory, key_dim, value_dim, bias, **dict(attention_kwargs or {}))
