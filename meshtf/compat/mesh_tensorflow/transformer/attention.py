"""Projections and attention of a Transformer, whose variables have the original's names and dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.compat.mesh_tensorflow.layers.attention import MASKED
from meshtf.compat.mesh_tensorflow.layers.dense import without_dims
from meshtf.errors import GraphError, ShapeError
from meshtf.graph import Mesh, Tensor, VariableDType


class Trains(Protocol):
    """What attention asks of a context."""

    @property
    def train(self) -> bool:
        """Whether weights are dropped."""
        ...


class AttentionParams:
    """Variables `q`, `k`, `v` and `o`, and what they make of activations.

    Args:
      mesh: where they live.
      query_input_dim: channels that queries are made of.
      memory_input_dim: channels that keys and values are made of.
      output_dim: channels of the result.
      key_dim: channels of a head's queries and keys.
      value_dim: channels of a head's values.
      query_heads_dims: heads of queries and outputs.
      memory_heads_dims: heads of keys and values: all of the queries', some, or none.
      variable_dtype: of the variables.
      shared_kv: whether keys are the values too, of one variable `kv`.
      no_query: whether there is no variable `q`.
      combine_dims: whether heads and channels are one dimension in the variables.
      ensemble_dim: for each of its elements there are other variables.
      keep_query_heads_dims: whether the output has heads, each of its own.
      fold_scaling_into_initializer: whether queries start so small that scores need no scale; else they are scaled.
      make_attention_vars: whether there are others than `o`.

    Raises:
      ShapeError: keys that are the values have other channels.
    """

    def __init__(  # noqa: PLR0913  # the original's parameters
        self,
        mesh: Mesh,
        query_input_dim: Dimension,
        memory_input_dim: Dimension,
        output_dim: Dimension,
        key_dim: Dimension,
        value_dim: Dimension,
        query_heads_dims: Sequence[Dimension] | None,
        memory_heads_dims: Sequence[Dimension] | None,
        variable_dtype: VariableDType,
        shared_kv: bool = False,
        no_query: bool = False,
        combine_dims: bool = True,
        ensemble_dim: Dimension | None = None,
        keep_query_heads_dims: bool = False,
        fold_scaling_into_initializer: bool = True,
        make_attention_vars: bool = True,
    ) -> None:
        if shared_kv and key_dim != value_dim:
            raise ShapeError(
                f"with shared_kv keys are the values, and key_dim is {key_dim} where value_dim is {value_dim}; "
                f"give both one dimension"
            )
        self.mesh, self.variable_dtype = mesh, variable_dtype
        self.query_input_dim, self.memory_input_dim, self.output_dim = query_input_dim, memory_input_dim, output_dim
        self.key_dim, self.value_dim = key_dim, value_dim
        self.query_heads_dims, self.memory_heads_dims = list(query_heads_dims or []), list(memory_heads_dims or [])
        self.shared_kv, self.no_query, self.combine_dims = shared_kv, no_query, combine_dims
        self.keep_query_heads_dims, self.make_attention_vars = keep_query_heads_dims, make_attention_vars
        self.fold_scaling_into_initializer = fold_scaling_into_initializer
        lead = [ensemble_dim] if ensemble_dim else []
        self.q_shape = [*lead, query_input_dim, *self._in_variable(self.q_dims)]
        self.k_shape = [*lead, memory_input_dim, *self._in_variable(self.k_dims)]
        self.v_shape = [*lead, memory_input_dim, *self._in_variable(self.v_dims)]
        self.o_shape = [*lead, *self._in_variable(self.o_dims), output_dim]
        self.init_weights()

    def init_weights(self) -> None:
        """Makes the variables."""
        of_query = self.query_input_dim.size * (self.key_dim.size if self.fold_scaling_into_initializer else 1)
        of_memory = self.memory_input_dim.size
        if self.make_attention_vars:
            if not self.no_query:
                self.wq = self._variable("q", self.q_shape, of_query)
            if self.shared_kv:
                self.wkv = self._variable("kv", self.k_shape, of_memory)
            else:
                self.wk = self._variable("k", self.k_shape, of_memory)
                self.wv = self._variable("v", self.v_shape, of_memory)
        self.wo = self._variable("o", self.o_shape, math.prod(d.size for d in self.o_dims))

    def _variable(self, name: str, dims: Sequence[Dimension], summed: int) -> Tensor:
        start = tf.compat.v1.random_normal_initializer(stddev=summed**-0.5)
        return get_variable(self.mesh, name, Shape(dims), self.variable_dtype, initializer=start)

    @property
    def q_dims(self) -> list[Dimension]:
        return [*self.query_heads_dims, self.key_dim]

    @property
    def k_dims(self) -> list[Dimension]:
        return [*self.memory_heads_dims, self.key_dim]

    @property
    def v_dims(self) -> list[Dimension]:
        return [*self.memory_heads_dims, self.value_dim]

    @property
    def o_dims(self) -> list[Dimension]:
        return [*self.query_heads_dims, self.value_dim]

    def compute_q(self, query_antecedent: Tensor) -> Tensor:
        """Queries, [..., query_heads_dims, key_dim]; scores of them need no scale."""
        q = self._projected(query_antecedent, self.wq, self.query_input_dim, self.q_dims)
        return q if self.fold_scaling_into_initializer else q * self.key_dim.size**-0.5

    def compute_kv(self, memory_antecedent: Tensor) -> Tensor:
        """Keys that are the values too, [..., memory_heads_dims, key_dim]. GraphError unless they are shared."""
        self._check_shared(True, "compute_kv")
        return self._projected(memory_antecedent, self.wkv, self.memory_input_dim, self.k_dims)

    def compute_k(self, memory_antecedent: Tensor) -> Tensor:
        """Keys, [..., memory_heads_dims, key_dim]. GraphError where they are the values too."""
        self._check_shared(False, "compute_k")
        return self._projected(memory_antecedent, self.wk, self.memory_input_dim, self.k_dims)

    def compute_v(self, memory_antecedent: Tensor) -> Tensor:
        """Values, [..., memory_heads_dims, value_dim]. GraphError where they are the keys too."""
        self._check_shared(False, "compute_v")
        return self._projected(memory_antecedent, self.wv, self.memory_input_dim, self.v_dims)

    def compute_output(self, o: Tensor, output_shape: Any = None) -> Tensor:
        """What heads found, as channels of the result: [..., output_dim], or the dimensions of `output_shape`."""
        summed = self.o_dims
        if self.combine_dims:
            rest = [d for d in o.shape if d not in summed]
            (joined,) = self._in_variable(summed)
            o = mtf.reshape(mtf.transpose(o, Shape([*rest, *summed])), Shape([*rest, joined]))
            summed = [joined]
        if self.keep_query_heads_dims:
            summed = [self.value_dim]
        wo = mtf.cast(self.wo, o.dtype)
        return mtf.einsum([o, wo], output_shape, None if output_shape is not None else summed)

    def _in_variable(self, dims: Sequence[Dimension]) -> list[Dimension]:
        return [_combined(dims)] if self.combine_dims else list(dims)

    def _check_shared(self, wanted: bool, called: str) -> None:
        if self.shared_kv != wanted:
            other = "compute_k and compute_v" if wanted else "compute_kv"
            raise GraphError(f"{called} was called of AttentionParams with shared_kv={self.shared_kv}; call {other}")

    def _projected(self, x: Tensor, weights: Tensor, summed: Dimension, made: Sequence[Dimension]) -> Tensor:
        y = mtf.einsum([x, mtf.cast(weights, x.dtype)], reduced_dims=[summed])
        return mtf.replace_dimensions(y, y.shape.dims[-1], list(made)) if self.combine_dims else y


def _combined(dims: Sequence[Dimension]) -> Dimension:
    """One dimension, with the name of the first."""
    return Dimension(dims[0].name, math.prod(d.size for d in dims))


def visibility_mask_to_attention_bias(visible: Tensor, dtype: tf.DType) -> Tensor:
    """0 where a position is seen, and what hides it elsewhere: to be added to scores."""
    return mtf.cast(mtf.logical_not(visible), dtype) * MASKED


def maybe_reshape_attention_input_for_2d_sharding(
    context: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, unsplittable_dims: Sequence[Dimension]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The tensors as they are: a mesh axis that no dimension names is left to the layout."""
    return q, k, v, bias


def attention_params_simple(
    mesh: Mesh, io_dim: Dimension, kv_dim: Dimension, heads_dim: Dimension, variable_dtype: VariableDType
) -> AttentionParams:
    """Those of as many heads for keys and values as for queries, all with the same channels."""
    return AttentionParams(mesh, io_dim, io_dim, io_dim, kv_dim, kv_dim, [heads_dim], [heads_dim], variable_dtype)


def attention(  # noqa: PLR0913  # the original's parameters
    q: Tensor,
    k: Tensor,
    v: Tensor,
    memory_length_dim: Dimension,
    key_dim: Dimension,
    value_dim: Dimension,
    bias: Tensor | None = None,
    dropout_rate: float = 0.0,
    dropout_broadcast_dims: Sequence[Dimension] | None = None,
    extra_logit: float | Tensor | None = None,
    context: Trains | None = None,
    float32_logits: bool = True,
    z_loss_coeff: float | None = None,
) -> Tensor:
    """Values weighted by the softmax of q . k + bias, which is not scaled.

    Args:
      q: [..., key_dim].
      k: [..., memory_length_dim, key_dim].
      v: [..., memory_length_dim, value_dim].
      memory_length_dim: positions of the memory.
      key_dim: summed over for the scores.
      value_dim: of the result.
      bias: added to the scores.
      dropout_rate: of weights, where `context.train` says so.
      dropout_broadcast_dims: dimensions along which they are dropped alike.
      extra_logit: a score beside the others, of a value of zeros.
      context: says whether it is training; None for no.
      float32_logits: whether scores are float32 in any case.
      z_loss_coeff: of the mean square of the logarithm of the softmax's denominator, which goes to `context.losses`.

    Returns:
      [..., value_dim], in the order of q.
    """
    rest = [d for d in q.shape if d != key_dim]
    scores = mtf.einsum([q, k], Shape([*rest, memory_length_dim]))
    if float32_logits:
        scores = mtf.cast(scores, tf.float32)
    if bias is not None:
        scores += mtf.cast(bias, scores.dtype)
    if z_loss_coeff is not None and context is not None and context.train:
        _add_z_loss(context, scores, memory_length_dim, z_loss_coeff, v.dtype)
    weights = mtf.cast(mtf.softmax(scores, memory_length_dim, extra_logit), v.dtype)
    is_training = context is not None and context.train
    kept = without_dims(weights.shape, dropout_broadcast_dims)
    weights = mtf.dropout(weights, is_training, rate=dropout_rate, noise_shape=kept)
    return mtf.einsum([weights, v], Shape([*rest, value_dim]))


def _add_z_loss(context: Any, scores: Tensor, memory: Dimension, coefficient: float, dtype: tf.DType) -> None:
    log_z = mtf.reduce_logsumexp(scores, memory)
    loss = mtf.reduce_mean(mtf.square(log_z) * mtf.cast(context.nonpadding, log_z.dtype))
    loss *= coefficient / max(context.num_microbatches or 1, 1)
    context.losses.append(mtf.cast(loss, dtype))


def local_attention_1d(  # noqa: PLR0913  # the original's parameters
    q: Tensor,
    k: Tensor,
    v: Tensor,
    length_dim: Dimension,
    key_dim: Dimension,
    value_dim: Dimension,
    fully_autoregressive: bool = True,
    length_dim_num_splits: int = 1,
    radius: int = 128,
    sequence_id: Tensor | int = 1,
    write_priority: Tensor | None = None,
    read_priority: Tensor | None = None,
    attention_kwargs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Attention to the last `radius` positions, the own one among them, and, unless autoregressive, as many ahead.

    All scores are made, and those outside are masked: the numbers of the original, not its memory. A model of one's own
    words has `meshtf.layers.local_attention`, which makes only those in the window, whatever the layout.

    Args:
      q: [..., length_dim, key_dim].
      k: [..., length_dim, key_dim].
      v: [..., length_dim, value_dim].
      length_dim: positions.
      key_dim: summed over for the scores.
      value_dim: of the result.
      fully_autoregressive: whether nothing ahead is seen.
      length_dim_num_splits: ignored: the layout says how positions are split.
      radius: how far is seen.
      sequence_id: only positions of the same one are seen.
      write_priority: with `read_priority`, in place of the order of positions: those are seen that were written no
        later than is read.
      read_priority: see `write_priority`.
      attention_kwargs: further arguments of `attention`.

    Returns:
      [..., length_dim, value_dim].
    """
    memory = Dimension(f"memory_{length_dim.name}", length_dim.size)
    here, there = (mtf.range(q.mesh, dim, tf.int32) for dim in (length_dim, memory))
    distance = mtf.sub(here, there, output_shape=Shape([length_dim, memory]))
    seen = mtf.less(distance, radius)
    if not fully_autoregressive:
        seen = mtf.logical_and(seen, mtf.greater_equal(distance, -radius))
    if read_priority is not None and write_priority is not None:
        written = mtf.rename_dimension(write_priority, length_dim.name, memory.name)
        seen = mtf.logical_and(seen, mtf.greater_equal(read_priority, written))
    elif fully_autoregressive:
        seen = mtf.logical_and(seen, mtf.greater_equal(distance, 0))
    if not isinstance(sequence_id, int):
        other = mtf.rename_dimension(sequence_id, length_dim.name, memory.name)
        seen = mtf.logical_and(seen, mtf.equal(sequence_id, other))
    bias = visibility_mask_to_attention_bias(seen, tf.float32)
    k, v = (mtf.rename_dimension(x, length_dim.name, memory.name) for x in (k, v))
    return attention(q, k, v, memory, key_dim, value_dim, bias, **dict(attention_kwargs or {}))
