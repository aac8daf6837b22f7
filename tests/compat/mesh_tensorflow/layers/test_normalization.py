"""Normalization is NumPy's; moving averages are assignments that a session runs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, graph_mode, initial, load_initial, mesh_impl

X = initial("x", [BATCH.size, HIDDEN.size])


def test_both_normalizations() -> None:
    with graph_mode(), tf.compat.v1.Session() as session:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        x = mtf.import_tf_tensor(mesh, X, [BATCH, HIDDEN])
        layer = mtf.layers.layer_norm(x, HIDDEN, name="norm")
        whole, updates = mtf.layers.batch_norm(x, is_training=True, momentum=0.75, name="bn")
        lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
        exported = [lowering.export_to_tf_tensor(t) for t in (layer, whole)]
        train = tf.group([lowering.lowered_operation(op) for op in updates])
        load_initial(graph, session)
        (layer_value, batch_value), _ = session.run([exported, train])
        session.run(lowering.copy_slices_to_masters())
        moved = session.run([graph.masters["bn/bn_moving_mean"], graph.masters["bn/bn_moving_variance"]])

    scale, bias = (initial(f"norm/layer_norm/layer_norm_{n}", [HIDDEN.size]) for n in ("scale", "bias"))
    wanted = (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-6) * scale + bias
    assert_close(layer_value, wanted, terms=4 * HIDDEN.size)
    scale, bias = (initial(f"bn/batch_norm_{n}", [HIDDEN.size]) for n in ("scale", "bias"))
    assert_close(batch_value, (X - X.mean(0)) / np.sqrt(X.var(0) + 1e-9) * scale + bias, terms=4 * BATCH.size)
    assert_close(moved[0], X.mean(0) * 0.25, terms=2 * BATCH.size, magnitude=np.abs(X).max())
    assert_close(moved[1], 0.75 + X.var(0) * 0.25, terms=2 * BATCH.size)
