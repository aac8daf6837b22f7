"""Values known while the graph is built: constants and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike, Shape, ShapeLike, convert_to_dimension, convert_to_shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.inputs.placeholder import import_tf_tensor, known_array
from meshtf.ops.inputs.scalars import held_by
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.takes_mesh import takes_mesh


class FillOperation(Operation):
    """A tensor with one value everywhere."""

    takes_padding = True

    def __init__(self, mesh: Mesh, value: Any, shape: Shape, dtype: tf.DType, name: str = "constant") -> None:
        super().__init__([], [(shape, dtype)], name=name, mesh=mesh)
        self.value = value

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        layout = planner.layouts[output]
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        value, dtype = self.value, output.dtype

        def emit(core: Core) -> tf.Tensor:
            return tf.fill(np.array(size, np.int32), tf.constant(value, dtype))

        spec, facts = (output.shape, dtype, layout), WorkFacts(is_trivial=True)
        planner.write(output, planner.compute("constant", emit, [], [spec], facts=facts)[0])


class RangeOperation(Operation):
    """The numbers 0, 1, 2, ... along a dimension."""

    takes_padding = True

    def __init__(self, mesh: Mesh, dim: Shape, dtype: tf.DType, name: str = "range") -> None:
        super().__init__([], [(dim, dtype)], name=name, mesh=mesh)

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        layout = planner.layouts[output]
        (size,) = layout.slice_shape(output.shape, planner.mesh_shape)
        (axes,) = layout.axes

        def emit(core: Core) -> tf.Tensor:
            positions = tf.range(size) + core.coordinate(axes) * size if axes else tf.range(size)
            return tf.cast(positions, output.dtype)

        spec, facts = (output.shape, output.dtype, layout), WorkFacts(is_trivial=True)
        planner.write(output, planner.compute("range", emit, [], [spec], facts=facts)[0])


@takes_mesh
def constant(mesh: Mesh, value: Any, shape: ShapeLike | None = None, dtype: tf.DType = tf.float32) -> Tensor:
    """A tensor with one number everywhere, or with the elements of an array.

    Args:
      mesh: the mesh of the result.
      value: a number of Python or NumPy, or an array.
      shape: named shape; None: a 0-d tensor.
      dtype: the dtype of the result, to which an array is converted.

    Raises:
      ShapeError: an array's sizes are not those of `shape`.
      DtypeError: the dtype cannot hold a number, alone or in an array, such as 1.5 in int32.

    Examples:
      >>> mtf.constant(mesh, 0.5, "batch:4")
      constant [batch:4] float32
      >>> value(mtf.constant(mesh, [[1, 2], [3, 4]], "rows:2 columns:2", tf.int32))
      array([[1, 2],
             [3, 4]], dtype=int32)
    """
    named, dtype = convert_to_shape(shape) or Shape([]), dtype_of(dtype)
    array = held_by(known_array(value), dtype)
    if array.ndim == 0:
        return FillOperation(mesh, array, named, dtype).outputs[0]
    return import_tf_tensor(mesh, array, named, name="constant")


@takes_mesh
def fill(mesh: Mesh, value: Any, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
    """A tensor with one number everywhere.

    Args:
      mesh: the mesh of the result.
      value: a number.
      shape: named shape.
      dtype: the dtype of the result.

    Raises:
      ShapeError: the value is an array.
      DtypeError: the dtype cannot hold the number.

    Examples:
      >>> value(mtf.fill(mesh, 7, "n:3", tf.int32))
      array([7, 7, 7], dtype=int32)
    """
    if np.ndim(value):
        raise ShapeError(f"fill takes a scalar, not an array of shape {np.shape(value)}; use mtf.constant")
    return constant(mesh, value, shape, dtype)


@takes_mesh
def zeros(mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
    """Zeros (False for bool).

    Examples:
      >>> mtf.zeros(mesh, "batch:4 hidden:8")
      constant [batch:4 hidden:8] float32
      >>> value(mtf.zeros(mesh, "n:2", tf.bool))
      array([False, False])
    """
    return constant(mesh, 0, shape, dtype)


@takes_mesh
def ones(mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32) -> Tensor:
    """Ones (True for bool).

    Examples:
      >>> mtf.ones(mesh, [], tf.int32)
      constant [] int32
    """
    return constant(mesh, 1, shape, dtype)


@language_function
def zeros_like(t: Tensor) -> Tensor:
    """Zeros of the shape and dtype of `t`.

    Examples:
      >>> mtf.zeros_like(x)
      constant [batch:4 hidden:8] float32
    """
    check_tensor(t)
    return zeros(t.mesh, t.shape, t.dtype)


@language_function
def ones_like(t: Tensor) -> Tensor:
    """Ones of the shape and dtype of `t`.

    Examples:
      >>> mtf.ones_like(x)
      constant [batch:4 hidden:8] float32
    """
    check_tensor(t)
    return ones(t.mesh, t.shape, t.dtype)


@takes_mesh
def range(mesh: Mesh, dim: DimensionLike, dtype: tf.DType = tf.int32, name: str | None = None) -> Tensor:
    """The numbers from 0 to dim.size - 1 along a dimension, which may be split.

    Args:
      mesh: the mesh of the result.
      dim: the dimension.
      dtype: an integer or floating dtype.
      name: the operation's name.

    Raises:
      ShapeError: no dimension is given.
      DtypeError: the dtype is bool or complex, or an integer dtype that cannot hold the last number.

    Examples:
      >>> value(mtf.range(mesh, ("length", 4)))
      array([0, 1, 2, 3], dtype=int32)
      >>> mtf.range(mesh, mtf.Dimension("length", 4), tf.float32)
      range_1 [length:4] float32
    """
    dtype, dimension = dtype_of(dtype), convert_to_dimension(dim)
    if dimension is None:
        raise ShapeError("a dimension is needed here; write mtf.Dimension(name, size)")
    if not (dtype.is_integer or dtype.is_floating):
        raise DtypeError(f"a range of {dtype.name} makes no sense; use an integer or floating type")
    last = dimension.size - 1
    if dtype.is_integer and last > dtype.max:
        raise DtypeError(f"[{dimension}] goes up to {last}, but {dtype.name} only to {dtype.max}; use tf.int32")
    return RangeOperation(mesh, Shape([dimension]), dtype, name or "range").outputs[0]
