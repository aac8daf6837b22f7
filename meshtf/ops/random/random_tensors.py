"""Tensors of random numbers, the same under every layout."""

from __future__ import annotations

import tensorflow as tf

from meshtf import random
from meshtf.dimension import ShapeLike, shape_of
from meshtf.errors import DtypeError, UsageError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.number_checks import is_number
from meshtf.ops.random.random_operation import RandomOperation
from meshtf.random.distributions import FLOATS, INTEGERS, bounds, check_dtype
from meshtf.takes_mesh import takes_mesh


@takes_mesh
def random_uniform(
    mesh: Mesh,
    shape: ShapeLike,
    dtype: tf.DType = tf.float32,
    minval: float = 0.0,
    maxval: float | None = None,
    name: str = "random_uniform",
) -> Tensor:
    """Uniform random numbers in [minval, maxval).

    Args:
      mesh: the mesh of the result.
      shape: named shape.
      dtype: floating, int32 or int64.
      minval: the lower bound, inclusive.
      maxval: the upper bound, exclusive; by default 1. Integers need one.
      name: the operation's name, part of the random key.

    Raises:
      ShapeError: no shape is given.
      DtypeError: integers have no `maxval`, or the dtype is none of these.
      UsageError: no number of the dtype is in [minval, maxval), or a bound or their difference is beyond the dtype;
        or integers have bounds that are fractions.

    Examples:
      >>> mtf.random_uniform(mesh, "batch:4 hidden:8")
      random_uniform [batch:4 hidden:8] float32
      >>> mtf.random_uniform(mesh, "batch:4", tf.int32, minval=1, maxval=7, name="dice")
      dice [batch:4] int32
    """
    dtype = check_dtype("uniform numbers", dtype_of(dtype), FLOATS + INTEGERS)
    if maxval is None:
        if dtype.is_integer:
            raise DtypeError("random_uniform of integers needs maxval")
        maxval = 1.0
    for end, bound in (("minval", minval), ("maxval", maxval)):
        if not is_number(bound):
            raise UsageError(f"{end} must be a number, and is {bound!r}")
    if not minval < maxval:
        raise UsageError(f"minval must be below maxval, and they are {minval} and {maxval}")
    try:
        bounds(minval, maxval, dtype)
    except ValueError as error:
        raise UsageError(str(error)) from None

    def draw(*where: object) -> tf.Tensor:
        return random.uniform(*where, dtype, minval, maxval)  # type: ignore[arg-type]

    return RandomOperation(mesh, shape_of(shape), dtype, draw, name).outputs[0]


@takes_mesh
def random_normal(
    mesh: Mesh,
    shape: ShapeLike,
    dtype: tf.DType = tf.float32,
    mean: float = 0.0,
    stddev: float = 1.0,
    name: str = "random_normal",
) -> Tensor:
    """Normal random numbers.

    Args:
      mesh: the mesh of the result.
      shape: named shape.
      dtype: floating.
      mean: the mean of the distribution.
      stddev: its standard deviation.
      name: the operation's name, part of the random key.

    Raises:
      ShapeError: no shape is given.
      DtypeError: the dtype is not floating.

    Examples:
      >>> mtf.random_normal(mesh, "batch:4 hidden:8", stddev=0.02)
      random_normal [batch:4 hidden:8] float32
    """
    dtype = check_dtype("normal numbers", dtype_of(dtype), FLOATS)
    _check_moments(mean, stddev)

    def draw(*where: object) -> tf.Tensor:
        return random.normal(*where, dtype, mean, stddev)  # type: ignore[arg-type]

    return RandomOperation(mesh, shape_of(shape), dtype, draw, name).outputs[0]


@takes_mesh
def random_truncated_normal(
    mesh: Mesh,
    shape: ShapeLike,
    dtype: tf.DType = tf.float32,
    mean: float = 0.0,
    stddev: float = 1.0,
    name: str = "random_truncated_normal",
) -> Tensor:
    """Normal random numbers within two standard deviations.

    Args:
      mesh: the mesh of the result.
      shape: named shape.
      dtype: floating.
      mean: the mean of the distribution before truncation.
      stddev: its standard deviation before truncation.
      name: the operation's name, part of the random key.

    Raises:
      ShapeError: no shape is given.
      DtypeError: the dtype is not floating.

    Examples:
      >>> z = mtf.random_truncated_normal(mesh, "n:1000")
      >>> bool(np.all(np.abs(value(z)) <= 2.0))
      True
    """
    dtype = check_dtype("normal numbers", dtype_of(dtype), FLOATS)
    _check_moments(mean, stddev)

    def draw(*where: object) -> tf.Tensor:
        return random.truncated_normal(*where, dtype, mean, stddev)  # type: ignore[arg-type]

    return RandomOperation(mesh, shape_of(shape), dtype, draw, name).outputs[0]


def _check_moments(mean: object, stddev: object) -> None:
    if not is_number(mean):
        raise UsageError(f"mean must be a number, and is {mean!r}")
    if not is_number(stddev) or stddev < 0:
        raise UsageError(f"stddev must be a number of at least 0, and is {stddev!r}")
