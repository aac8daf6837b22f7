"""The vector by which a text is classified."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import VocabularyEmbedding, ZerosInitializer
from meshtf.layers.transformer import FeedForward, TokenEmbedding, TransformerStack
from meshtf.models import TextClassifier
from meshtf.testing import interpret_graph


def test_the_mean_of_many_tokens_is_no_infinity_in_float16() -> None:
    """The sum of 1,000 vectors of 100 is above the largest number of float16. The last tokens are padding."""
    same = VocabularyEmbedding(
        2, initializer=lambda _summed, _new: lambda mesh, shape, dtype: mtf.fill(mesh, 100.0, shape, dtype)
    )
    nothing = FeedForward(4, kernel_initializer=ZerosInitializer(), output_initializer=ZerosInitializer())
    stack = TransformerStack([nothing], 1, use_final_norm=False)
    model = TextClassifier(4, TokenEmbedding(same), stack, num_classes=3, pooling="mean", activation="linear")
    ids = np.repeat([1, 0], [1000, 24])[np.newaxis].astype(np.int32)
    found = {}
    for dtype in (tf.float16, tf.float32):
        with mtf.Graph(variable_dtype=mtf.VariableDType(tf.float32, activation_dtype=dtype)) as graph:
            inputs = mtf.placeholder(mtf.Mesh(graph), "batch:1 length:1024", tf.int32, name="inputs")
            logits = model.logits({"inputs": inputs}, False)
        found[dtype] = interpret_graph(graph, [logits], {"inputs": ids}, "a:2", "length:a").results[0]
    assert found[tf.float32].any()
    np.testing.assert_allclose(found[tf.float16], found[tf.float32], rtol=1e-2, atol=0.5)
