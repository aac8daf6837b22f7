"""Values from outside: inputs that a program is fed, and arrays that are imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape, ShapeLike, convert_to_shape, shape_of
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.planning.planner import Planner
from meshtf.takes_mesh import takes_mesh


class InputOperation(Operation):
    """An array that is fed when the program runs, or that is already known. Each core reads its slice of it."""

    takes_padding = True

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, name: str, value: Any = None) -> None:
        with check_mesh(mesh).graph.outermost():  # only programs have inputs, loops inside them do not
            super().__init__([], [(shape, dtype)], name=name, mesh=mesh)
        self.value = value

    def lower(self, planner: Planner) -> None:
        planner.feed(self.name, self.outputs[0], is_known=self.value is not None)


@takes_mesh
def placeholder(mesh: Mesh, shape: ShapeLike, dtype: tf.DType = tf.float32, name: str = "input") -> Tensor:
    """An input of the program, fed whole by its name when the program runs.

    Args:
      mesh: the mesh of the result.
      shape: the named shape of the input.
      dtype: the dtype of the input.
      name: the name under which it is fed.

    Examples:
      >>> mtf.placeholder(mesh, "batch:4 length:16", tf.int32, name="ids")
      ids [batch:4 length:16] int32
    """
    return InputOperation(mesh, shape_of(shape), dtype_of(dtype), name).outputs[0]


@takes_mesh
def import_tf_tensor(mesh: Mesh, tf_tensor: Any, shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Brings an array or tf.Tensor into the graph.

    Args:
      mesh: the mesh of the result.
      tf_tensor: an array, which keeps its dtype, or Python numbers. These become int32 (int64 if they need it), float32
        or bool, as in TensorFlow.
      shape: names its dimensions; None for a scalar.
      name: the operation's name.

    Raises:
      ShapeError: its rank or sizes are not those of `shape`.

    Examples:
      >>> mtf.import_tf_tensor(mesh, np.zeros([2, 3]), "rows:2 columns:3")
      import [rows:2 columns:3] float64
      >>> mtf.import_tf_tensor(mesh, [1, 2, 3], "n:3")
      import_1 [n:3] int32
    """
    if tf.is_tensor(tf_tensor) and not isinstance(tf_tensor, tf.Tensor | tf.Variable):
        raise ShapeError(f"a {type(tf_tensor).__name__} is not an array; make it dense first")
    value: Any = tf_tensor if isinstance(tf_tensor, tf.Tensor) else _array(tf_tensor)
    named = convert_to_shape(shape) or Shape([])
    own = value.shape.as_list() if isinstance(value, tf.Tensor) else list(value.shape)
    if own != named.to_integer_list:
        raise ShapeError(f"an array of shape {own} cannot be [{named}]; name each of its dimensions, with its size")
    return InputOperation(mesh, named, dtype_of(value.dtype), name or "import", value).outputs[0]


def known_array(value: Any) -> np.ndarray:
    """A NumPy array of a value that is known while the graph is built.

    Raises:
      ShapeError: lists have unequal lengths.
      DtypeError: it holds no numbers.
    """
    try:
        array = host_array(value)
    except ValueError:
        raise ShapeError(f"a {type(value).__name__} that is no array: its parts differ in length") from None
    if array.dtype.kind in "OSUMm":
        raise DtypeError(f"an array of numbers is needed, not of {array.dtype}")
    return array


def _array(value: Any) -> np.ndarray:
    """An array of its own dtype; Python's numbers get the dtypes that TensorFlow gives them."""
    array = known_array(value)
    if not all(type(x) in (int, float) for x in tf.nest.flatten(value)):
        return array
    narrow = array.astype({"i": np.int32, "f": np.float32}.get(array.dtype.kind, array.dtype))
    return array if array.dtype.kind == "i" and not np.array_equal(narrow, array) else narrow
