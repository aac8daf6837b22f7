"""The variables of attention, and the projections with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType


class AttentionParams:
    """The variables `q`, `k`, `v` and `o`, and the projections with them.

    Args:
      mesh: the mesh of the layers.
      query_input_dim: the input channels of queries.
      memory_input_dim: the input channels of keys and values.
      output_dim: channels of the result.
      key_dim: channels of a head's queries and keys.
      value_dim: channels of a head's values.
      query_heads_dims: heads of queries and outputs.
      memory_heads_dims: heads of keys and values: all of the queries', some, or none.
      variable_dtype: the dtypes of variables.
      shared_kv: whether keys are also the values, with one variable `kv`.
      no_query: whether to leave out the variable `q`.
      combine_dims: whether heads and channels form one dimension in the variables.
      ensemble_dim: a dimension whose elements each have their own variables.
      keep_query_heads_dims: whether the output keeps the heads and does not sum over them.
      fold_scaling_into_initializer: whether queries start so small that scores need no scale. Else they are scaled.
      make_attention_vars: whether to make variables besides `o`.

    Raises:
      ShapeError: `shared_kv` is true, but keys and values have different channels.
    """

    def __init__(  # noqa: PLR0913  # the original's parameters
        self,
        mesh: Mesh,
        query_input_dim: language.Dimension,
        memory_input_dim: language.Dimension,
        output_dim: language.Dimension,
        key_dim: language.Dimension,
        value_dim: language.Dimension,
        query_heads_dims: Sequence[language.Dimension] | None,
        memory_heads_dims: Sequence[language.Dimension] | None,
        variable_dtype: VariableDType,
        shared_kv: bool = False,
        no_query: bool = False,
        combine_dims: bool = True,
        ensemble_dim: language.Dimension | None = None,
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

    def _variable(self, name: str, dims: Sequence[language.Dimension], summed: int) -> Tensor:
        start = tf.compat.v1.random_normal_initializer(stddev=summed**-0.5)
        return get_variable(self.mesh, name, Shape(dims), self.variable_dtype, initializer=start)

    @property
    def q_dims(self) -> list[language.Dimension]:
        return [*self.query_heads_dims, self.key_dim]

    @property
    def k_dims(self) -> list[language.Dimension]:
        return [*self.memory_heads_dims, self.key_dim]

    @property
    def v_dims(self) -> list[language.Dimension]:
        return [*self.memory_heads_dims, self.value_dim]

    @property
    def o_dims(self) -> list[language.Dimension]:
        return [*self.query_heads_dims, self.value_dim]

    def compute_q(self, query_antecedent: Tensor) -> Tensor:
        """Queries, [..., query_heads_dims, key_dim]. Their scores need no scale."""
        q = self._projected(query_antecedent, self.wq, self.query_input_dim, self.q_dims)
        return q if self.fold_scaling_into_initializer else q * self.key_dim.size**-0.5

    def compute_kv(self, memory_antecedent: Tensor) -> Tensor:
        """Keys that are also the values, [..., memory_heads_dims, key_dim].

        Raises:
          GraphError: keys and values are not shared.
        """
        self._check_shared(True, "compute_kv")
        return self._projected(memory_antecedent, self.wkv, self.memory_input_dim, self.k_dims)

    def compute_k(self, memory_antecedent: Tensor) -> Tensor:
        """Keys, [..., memory_heads_dims, key_dim].

        Raises:
          GraphError: keys and values are shared.
        """
        self._check_shared(False, "compute_k")
        return self._projected(memory_antecedent, self.wk, self.memory_input_dim, self.k_dims)

    def compute_v(self, memory_antecedent: Tensor) -> Tensor:
        """Values, [..., memory_heads_dims, value_dim].

        Raises:
          GraphError: keys and values are shared.
        """
        self._check_shared(False, "compute_v")
        return self._projected(memory_antecedent, self.wv, self.memory_input_dim, self.v_dims)

    def compute_output(self, o: Tensor, output_shape: Any = None) -> Tensor:
        """Projects the heads' results to [..., output_dim], or to the dimensions of `output_shape`."""
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

    def _in_variable(self, dims: Sequence[language.Dimension]) -> list[language.Dimension]:
        return [_combined(dims)] if self.combine_dims else list(dims)

    def _check_shared(self, wanted: bool, called: str) -> None:
        if self.shared_kv != wanted:
            other = "compute_k and compute_v" if wanted else "compute_kv"
            raise GraphError(f"{called} was called of AttentionParams with shared_kv={self.shared_kv}; call {other}")

    def _projected(
        self, x: Tensor, weights: Tensor, summed: language.Dimension, made: Sequence[language.Dimension]
    ) -> Tensor:
        y = mtf.einsum([x, mtf.cast(weights, x.dtype)], reduced_dims=[summed])
        return mtf.replace_dimensions(y, y.shape.dims[-1], list(made)) if self.combine_dims else y


def _combined(dims: Sequence[language.Dimension]) -> language.Dimension:
    """One dimension with the name of the first."""
    return Dimension(dims[0].name, math.prod(d.size for d in dims))
