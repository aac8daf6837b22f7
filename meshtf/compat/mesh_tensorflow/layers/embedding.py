"""Embeddings of ids."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape, dims_of
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType


def embedding_weights(
    mesh: Mesh,
    vocab_dim: Dimension,
    output_dim: Dimension,
    variable_dtype: VariableDType,
    name: str = "embedding",
    ensemble_dim: Dimension | None = None,
    initializer: Any = None,
) -> Tensor:
    """The variable [ensemble_dim, vocab_dim, output_dim].

    By default it starts with normal numbers of deviation 1.
    """
    shape = Shape([*dims_of(ensemble_dim or []), vocab_dim, output_dim])
    start = initializer or tf.compat.v1.random_normal_initializer()
    return get_variable(mesh, name, shape, variable_dtype, initializer=start)


def embedding(
    indices: Tensor, vocab_dim: Dimension, output_dim: Dimension, variable_dtype: VariableDType, name: str = "embedding"
) -> Tensor:
    """The rows of the embedding at `indices`, [..., output_dim]."""
    weights = embedding_weights(indices.mesh, vocab_dim, output_dim, variable_dtype, name)
    return mtf.gather(weights, indices, vocab_dim)
