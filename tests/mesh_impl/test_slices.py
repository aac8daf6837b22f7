"""What everything but a backend asks of slices, on tf.Variables and on buffers of the virtual TPU."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.slices import is_finite, on_host, to_assign


@pytest.mark.parametrize("mesh_impl", [mtf.SpmdMeshImpl("all:2", ""), mtf.TpuMeshImpl("all:2", "")], ids=repr)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=lambda d: d.name)
def test_slices(mesh_impl: MeshImpl, dtype: tf.DType) -> None:
    slices = mesh_impl.zero_slices("x", [2, 3], dtype)
    assert sorted(slices) == [0, 1]
    value = np.arange(6).reshape(2, 3).astype(dtype.as_numpy_dtype)
    slices[1].assign(tf.constant(value))
    held = slices[1].numpy()
    for core, expected in ((0, 0 * value), (1, value)):
        np.testing.assert_array_equal(on_host(slices[core]), expected)
        assert (slices[core].dtype, slices[core].shape) == (dtype, [2, 3])
        assert is_finite(slices[core])
    for number in (np.nan, np.inf):
        slices[1].assign(np.where(value == 4, number, value).astype(dtype.as_numpy_dtype))
        assert not is_finite(slices[1])
    np.testing.assert_array_equal(held, value)


@pytest.mark.parametrize("mesh_impl", [mtf.SpmdMeshImpl("all:2", ""), mtf.TpuMeshImpl("all:2", "")], ids=repr)
def test_slices_that_are_given_the_same(mesh_impl: MeshImpl) -> None:
    slices = mesh_impl.zero_slices("x", [64, 64], tf.float32)
    value = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    given = to_assign(slices[0], value)
    for held in slices.values():
        held.assign(given)
    if isinstance(mesh_impl, mtf.SpmdMeshImpl):
        assert np.shares_memory(on_host(slices[0]), on_host(slices[1]))
    slices[1].assign(-value)
    np.testing.assert_array_equal(on_host(slices[0]), value)


def test_slices_that_were_given_the_same_are_updated_one_by_one() -> None:
    units = mtf.Dimension("units", 1 << 17)

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [units], initializer=mtf.zeros)
        return mtf.assign(w, w * 2.0 + 1.0)

    program = mtf.function(step, mtf.SpmdMeshImpl("all:2", ""))
    program.initialize()
    program.variables["w"] = np.full(units.size, 3.0)
    program()
    for held in program.variables.slices("w").slices.values():
        np.testing.assert_array_equal(on_host(held), np.full(units.size, 7.0))


def test_the_zeros_are_gone_when_slices_have_other_values() -> None:
    """They would be as much memory again."""
    mesh_impl = mtf.SpmdMeshImpl("all:1", "")
    (written,) = mesh_impl.zero_slices("x", [7, 13], tf.float32).values()
    written.assign(tf.ones([7, 13]))
    kept = [x for x in gc.get_objects() if isinstance(x, tf.Tensor) and x.shape == [7, 13]]
    assert kept == []
