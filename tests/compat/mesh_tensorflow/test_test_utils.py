"""Arrays are tensors, and tensors arrays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from tests.compat.mesh_tensorflow.sessions import graph_mode


@pytest.mark.parametrize("is_eager", [True, False])
def test_there_and_back(is_eager: bool) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tf.init_scope() if is_eager else graph_mode():
        converter = mtf.test_utils.NumpyConverter()
        tensor = converter.convert_np_array_to_mtf_tensor(x, dtype=tf.float32)
        ones = tf.compat.v1.ones_initializer()
        w = mtf.get_variable(converter.mesh, "w", tensor.shape, initializer=ones)
        assert tensor.shape.dimension_names == ["dim0", "dim1"]
        np.testing.assert_array_equal(converter.convert_mtf_tensor_to_np_array(tensor + w), x + 1)
