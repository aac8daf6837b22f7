"""Initializers that draw a variable's first value. You can also call one yourself, with only a shape."""

from __future__ import annotations

import dataclasses
from typing import overload

import tensorflow as tf

from meshtf.dimension import ShapeLike
from meshtf.errors import GraphError
from meshtf.field_checks import check, check_kinds, check_not_negative
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.ops.random.random_tensors import random_normal, random_truncated_normal, random_uniform
from meshtf.takes_mesh import method_takes_mesh


@dataclasses.dataclass(frozen=True, slots=True)
class RandomNormal:
    """An initializer that draws normal numbers.

    Examples:
      >>> mtf.get_variable(mesh, "w", "hidden:8", initializer=mtf.RandomNormal(stddev=0.02))
      w [hidden:8] float32
    """

    mean: float = 0.0
    stddev: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        check_not_negative(self, "stddev", error=GraphError)

    @overload
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @overload
    def __call__(self, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @method_takes_mesh
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
        return random_normal(mesh, shape, dtype, self.mean, self.stddev)


@dataclasses.dataclass(frozen=True, slots=True)
class TruncatedNormal:
    """An initializer that draws normal numbers within two standard deviations.

    Examples:
      >>> mtf.get_variable(mesh, "w", "hidden:8", initializer=mtf.TruncatedNormal(stddev=0.02))
      w [hidden:8] float32
    """

    mean: float = 0.0
    stddev: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        check_not_negative(self, "stddev", error=GraphError)

    @overload
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @overload
    def __call__(self, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @method_takes_mesh
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
        return random_truncated_normal(mesh, shape, dtype, self.mean, self.stddev)


@dataclasses.dataclass(frozen=True, slots=True)
class RandomUniform:
    """An initializer that draws uniform numbers in [minval, maxval).

    Examples:
      >>> mtf.get_variable(mesh, "w", "hidden:8", initializer=mtf.RandomUniform(-0.1, 0.1))
      w [hidden:8] float32
    """

    minval: float = 0.0
    maxval: float = 1.0

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        check(self, "maxval", self.minval < self.maxval, f"above minval, {self.minval}", GraphError)

    @overload
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @overload
    def __call__(self, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor: ...
    @method_takes_mesh
    def __call__(self, mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
        return random_uniform(mesh, shape, dtype, self.minval, self.maxval)
