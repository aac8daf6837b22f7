"""A value that is there is an array, whatever it is."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.host_array import host_array


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.int32, tf.bool])
@pytest.mark.parametrize("shape", [[], [2]])
def test_of_tensors(dtype: tf.DType, shape: list[int]) -> None:
    value = tf.cast(tf.ones(shape), dtype)
    for given in (value, tf.Variable(value), value.numpy()):
        array = host_array(given)
        assert isinstance(array, np.ndarray)
        assert (array.dtype, array.shape, array.min()) == (dtype.as_numpy_dtype, tuple(shape), 1)


def test_a_scalar_of_bfloat16_goes_wherever_an_array_does() -> None:
    one = tf.constant(1.0, tf.bfloat16)

    def program(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [], tf.bfloat16, initializer=one)
        return x + w + mtf.constant(mesh, one, [], tf.bfloat16)

    found = mtf.testing.interpret(program, {"x": ("", one)}, "all:2")
    mtf.testing.assert_close(found.results, one * 3, terms=2)
    step = mtf.function(program, mtf.SpmdMeshImpl("all:2", ""), {"x": mtf.TensorSpec([], tf.bfloat16)})
    step(x=one)
    step.variables["w"] = one * 2
    assert float(step(x=one)) == 4.0
    assert mtf.debug.watch(step, step.results).values(x=one).popitem()[1] == 4.0
    accelerated = mtf.function(program, mtf.GpuMeshImpl("all:2", ""), {"x": mtf.TensorSpec([], tf.bfloat16)})
    assert float(accelerated(x=one)) == 3.0
