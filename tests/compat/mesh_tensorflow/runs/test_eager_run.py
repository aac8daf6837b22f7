"""Where eager execution is on, variables, exports and updates are there at once, on any mesh."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.compat.mesh_tensorflow.runs.eager_mode import eager_mode
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, IO, MESHES, initial, mesh_impl

X = initial("x", [BATCH.size, IO.size])
V, W = (initial(name, [IO.size, HIDDEN.size]) for name in "vw")


@contextlib.contextmanager
def in_a_graph() -> Iterator[None]:
    """As `run_in_graph_and_eager_modes` of TensorFlow's tests runs a test."""
    with tf.Graph().as_default(), eager_mode():
        yield


@pytest.mark.parametrize("mesh_name", MESHES)
@pytest.mark.parametrize("mode", [contextlib.nullcontext, in_a_graph])
def test_variables_and_updates(mesh_name: str, mode: contextlib.AbstractContextManager[None]) -> None:
    """Both updates start from the same values, and a tensor exported behind them has the value from before."""
    with mode():
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        x = mtf.import_tf_tensor(mesh, tf.constant(X), [BATCH, IO])
        v, w = (
            mtf.get_variable(mesh, n, [IO, HIDDEN], initializer=tf.constant_initializer(a))
            for n, a in zip("vw", (V, W), strict=True)
        )
        total = mtf.einsum([x, v + w], [BATCH, HIDDEN])
        first, second = mtf.assign_add(v, w), mtf.assign_add(w, v)
        lowering = mtf.Lowering(graph, {mesh: mesh_impl(mesh_name)})
        assert lowering.lowered_operation(first) is None
        np.testing.assert_allclose(lowering.export_to_tf_tensor(total), X @ (V + W), rtol=1e-4, atol=1e-4)
        assert lowering.lowered_operation(second) is None  # done already, with the first
        lowering.copy_slices_to_masters()
        for name in "vw":
            np.testing.assert_array_equal(graph.masters[name], V + W)
        lowering.copy_masters_to_slices()
        np.testing.assert_allclose(lowering.export_to_tf_tensor(total), X @ (2 * (V + W)), rtol=1e-4, atol=1e-4)
