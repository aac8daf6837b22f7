"""Dense layers, embeddings and losses have the original's numbers, and their variables its names."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import ShapeError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, IO, evaluated, graph_mode, initial

X = initial("x", [BATCH.size, IO.size])
IDS = np.arange(BATCH.size, dtype=np.int32)
VOCABULARY = mtf.Dimension("vocab", 12)


def _program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, X, [BATCH, IO])
    ids = mtf.import_tf_tensor(mesh, IDS, [BATCH])
    same = mtf.layers.dense(x, IO, name="same")  # the dimension that it sums over has the name of the new one
    product = mtf.layers.dense_product(x, [IO], [HIDDEN], ["relu", "linear"], use_bias=False, name="gated")
    through = mtf.layers.dense_relu_dense(x, HIDDEN, is_training=True, dropout=0.0, name="ffn")
    rows = mtf.layers.embedding(ids, VOCABULARY, IO, mtf.VariableDType(), name="table")
    sigmoid = mtf.layers.sigmoid_cross_entropy_with_logits(x, mtf.cast(mtf.greater(x, 0.0), tf.float32))
    return {"same": same, "product": product, "through": through, "rows": rows, "sigmoid": sigmoid}


def test_numbers() -> None:
    found = evaluated(_program)
    wi, wo = initial("ffn/wi/kernel", [IO.size, HIDDEN.size]), initial("ffn/wo/kernel", [HIDDEN.size, IO.size])
    assert_close(found["same"], X @ initial("same/kernel", [16, 16]) + initial("same/bias", [16]), terms=IO.size + 1)
    first, second = (X @ initial(f"gated_{i}/kernel", [IO.size, HIDDEN.size]) for i in range(2))
    assert_close(found["product"], np.maximum(first, 0) * second, terms=2 * IO.size)
    assert_close(found["through"], np.maximum(X @ wi, 0) @ wo, terms=(IO.size, HIDDEN.size))
    np.testing.assert_array_equal(found["rows"], initial("table", [VOCABULARY.size, IO.size])[IDS])
    wanted = tf.nn.sigmoid_cross_entropy_with_logits((X > 0).astype(np.float32), X)
    assert_close(found["sigmoid"], wanted, terms=8)


def test_variables_have_the_names_of_checkpoints() -> None:
    with graph_mode():
        graph = mtf.Graph()
        x = mtf.import_tf_tensor(mtf.Mesh(graph, "mesh"), X, [BATCH, IO])
        for _ in range(2):
            with tf.compat.v1.variable_scope("block"):
                mtf.layers.dense(x, HIDDEN, master_dtype=tf.float32, slice_dtype=tf.bfloat16)
        # A layer of no name has its kernel in one scope and its bias in the next; layers that open a scope again share.
        assert list(graph.masters) == ["block/dense/kernel", "block/dense_1/bias"]
        assert graph.variables["block/dense/kernel"].slice_dtype == tf.bfloat16
        for _ in range(2):
            mtf.layers.dense(x, HIDDEN, use_bias=False)  # takes two scopes too
        assert list(graph.masters)[2:] == ["dense/kernel", "dense_2/kernel"]
        uniform = mtf.layers.VarianceScalingInitializer(scale=3.0, distribution="uniform")([IO], [HIDDEN])
        values = uniform([IO.size, HIDDEN.size], tf.float32)
        with tf.compat.v1.Session() as session:
            assert np.abs(session.run(values)).max() <= np.sqrt(9.0 / IO.size)
    with pytest.raises(ShapeError, match=r'"fan_in", "fan_out" or "fan_avg", not .fan.'):
        mtf.layers.VarianceScalingInitializer(mode="fan")
