"""What TensorFlow says of its kernels is what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.mesh_impl.of_onednn import said_by_onednn

PROGRAM = """
import json
import tensorflow as tf
from meshtf.mesh_impl.onednn_kernels import has_onednn_kernels

options, metadata = tf.compat.v1.RunOptions(output_partition_graphs=True), tf.compat.v1.RunMetadata()
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    images = tf.random.uniform([1, 8, 8, 4])
    session.run(tf.nn.conv2d(images, tf.ones([3, 3, 4, 4]), 1, "SAME"), options=options, run_metadata=metadata)
run = [node.op for part in metadata.partition_graphs for node in part.node]
print(json.dumps([has_onednn_kernels(), any("Mkl" in op and "Conv2D" in op for op in run)]))
"""


@pytest.mark.parametrize("setting", [{}, {"TF_ENABLE_ONEDNN_OPTS": "0"}], ids=str)
def test_of_a_convolution(setting: dict[str, str]) -> None:
    environment = {**{k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}, **setting}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    said, done_so = json.loads(done.stdout.splitlines()[-1])
    assert said == done_so
    assert not (setting and said)


@pytest.mark.parametrize(
    "setting",
    [{}, {"ONEDNN_MAX_CPU_ISA": "AVX2"}, {"DNNL_MAX_CPU_ISA": "sse41"}],
    ids=str,
)
def test_of_what_multiplies(setting: dict[str, str]) -> None:
    program = "from meshtf.mesh_impl.onednn_kernels import multiplies_by_avx2\nprint(multiplies_by_avx2())"
    said = said_by_onednn(program, {"TF_ENABLE_ONEDNN_OPTS": "0", **setting})
    assert said.printed == str("AVX2" in said.instructions)
