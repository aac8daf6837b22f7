"""What the room says of oneDNN's kernels is what TensorFlow does, and they compute what TensorFlow's own do."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.tensorflow_private import onednn_operations

PROGRAM = """
import json
import tensorflow as tf
from meshtf.tensorflow_private.onednn_operations import is_onednn_on

options, metadata = tf.compat.v1.RunOptions(output_partition_graphs=True), tf.compat.v1.RunMetadata()
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    images = tf.random.uniform([1, 8, 8, 4])
    session.run(tf.nn.conv2d(images, tf.ones([3, 3, 4, 4]), 1, "SAME"), options=options, run_metadata=metadata)
run = [node.op for part in metadata.partition_graphs for node in part.node]
print(json.dumps([is_onednn_on(), any("Mkl" in op and "Conv2D" in op for op in run)]))
"""


@pytest.mark.parametrize("setting", [{}, {"TF_ENABLE_ONEDNN_OPTS": "0"}], ids=str)
def test_whether_it_is_on_is_seen_in_a_convolution(setting: dict[str, str]) -> None:
    environment = {**{k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}, **setting}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    said, done_so = json.loads(done.stdout.splitlines()[-1])
    assert said == done_so
    assert not (setting and said)


SIZES = st.integers(1, 40)


@pytest.mark.plain_cpu
@settings(deadline=None)
@given(SIZES, SIZES, SIZES, st.integers(0, 3), st.booleans(), st.booleans())
def test_products(rows: int, contracted: int, columns: int, batch: int, transpose_a: bool, transpose_b: bool) -> None:
    """Of small integers, whose sums of products are exact in any order."""
    lead, draw = [batch] * (batch > 0), np.random.default_rng(0).integers
    a, b = draw(-2, 3, [*lead, rows, contracted]), draw(-2, 3, [*lead, contracted, columns])
    given_a, given_b = (
        tf.constant(x.swapaxes(-1, -2) if t else x, tf.float32) for x, t in ((a, transpose_a), (b, transpose_b))
    )

    @tf.function(autograph=False)
    def multiplied() -> tf.Tensor:
        if batch:
            return onednn_operations.batch_product(given_a, given_b, adj_x=transpose_a, adj_y=transpose_b)
        return onednn_operations.product(given_a, given_b, transpose_a=transpose_a, transpose_b=transpose_b)

    np.testing.assert_array_equal(multiplied(), a @ b)


@pytest.mark.plain_cpu
@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_image_gradients(height: int, width: int, taps: int, stride: int, same: bool) -> None:
    """Of small integers, as TensorFlow's own."""
    height, width = max(height, taps), max(width, taps)
    padding, strides, draw = "SAME" if same else "VALID", [1, stride, stride, 1], np.random.default_rng(0).integers
    kernel = tf.constant(draw(-2, 3, [taps, taps, 4, 5]), tf.float32)
    results = tf.nn.conv2d(tf.zeros([2, height, width, 4]), kernel, strides, padding)
    options = {
        "input_sizes": [2, height, width, 4],
        "filter": kernel,
        "out_backprop": tf.constant(draw(-2, 3, results.shape.as_list()), tf.float32),
        "strides": strides,
        "padding": padding,
    }
    found = tf.function(lambda: onednn_operations.image_gradient(**options), autograph=False)()
    np.testing.assert_array_equal(found, tf.raw_ops.Conv2DBackpropInput(**options))
