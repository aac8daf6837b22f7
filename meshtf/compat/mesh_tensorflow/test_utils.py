"""Helpers for tests of programs: arrays as tensors, and tensors as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._graph import Graph, Mesh
from meshtf.compat.mesh_tensorflow._lowering import Lowering
from meshtf.compat.mesh_tensorflow.placement_mesh_impl import PlacementMeshImpl
from meshtf.graph.tensor import Tensor


class NumpyConverter:
    """A graph on a mesh of one core. It makes tensors from arrays, and evaluates tensors.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> converter = old.test_utils.NumpyConverter()
      >>> x = converter.convert_np_array_to_mtf_tensor(np.arange(4), ["n"])
      >>> converter.convert_mtf_tensor_to_np_array(x * 2)
      array([0, 2, 4, 6], dtype=int32)
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.mesh = Mesh(self.graph, "mesh")
        self.session = tf.compat.v1.Session()

    def convert_np_array_to_mtf_tensor(
        self, x: np.ndarray, dim_names: Sequence[str] | None = None, dtype: tf.DType = tf.int32
    ) -> Tensor:
        """Makes a constant. Its dimensions are named dim0, dim1, ... unless names are given."""
        names = dim_names or [f"dim{i}" for i in range(x.ndim)]
        shape = Shape([Dimension(name, size) for name, size in zip(names, x.shape, strict=True)])
        return mtf.constant(self.mesh, x, shape, dtype)

    def convert_mtf_tensor_to_np_array(self, x_mtf: Tensor) -> np.ndarray:
        """The value of a tensor, with the initial values of all variables."""
        _, value = self.convert_mtf_tensor_to_tf_tensor(x_mtf)
        if tf.executing_eagerly():
            return value.numpy()
        self.session.run(tf.compat.v1.global_variables_initializer())
        return self.session.run(value)

    def convert_mtf_tensor_to_tf_tensor(self, mtf_tensor: Tensor) -> tuple[Lowering, tf.Tensor]:
        """A lowering and the tensor that it exports."""
        lowering = Lowering(self.graph, {self.mesh: PlacementMeshImpl([], {}, [""])})
        return lowering, lowering.export_to_tf_tensor(mtf_tensor)
