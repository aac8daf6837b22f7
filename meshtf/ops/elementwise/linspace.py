"""Numbers at equal distances along a dimension."""

from __future__ import annotations

import tensorflow as tf

from meshtf.dimension import DimensionLike
from meshtf.errors import DtypeError
from meshtf.graph.dtypes import dtype_of, sum_dtype
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.constants import range
from meshtf.takes_mesh import takes_mesh


@takes_mesh
def linspace(mesh: Mesh, start: float, stop: float, dim: DimensionLike, dtype: tf.DType = tf.float32) -> Tensor:
    """Numbers from `start` to `stop` at equal distances along a dimension, both ends included.

    Args:
      mesh: the mesh of the result.
      start: the first number.
      stop: the last number.
      dim: the dimension. Its size is the count of numbers. A single number is `start`.
      dtype: a real floating dtype.

    Raises:
      ShapeError: no dimension is given.
      DtypeError: the dtype is not real and floating.

    Examples:
      >>> value(mtf.linspace(mesh, 0.0, 1.0, ("n", 5)))
      array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    dtype = dtype_of(dtype)
    if not dtype.is_floating:
        raise DtypeError(f"evenly spaced numbers need a real floating dtype, not {dtype.name}")
    place = range(mesh, dim, sum_dtype(dtype))
    share = place / float(max(1, place.size - 1))  # the last share is exactly 1
    return cast(share * float(stop) + (1.0 - share) * float(start), dtype)
