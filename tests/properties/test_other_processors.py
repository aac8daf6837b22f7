"""Random bits and initial values are the same on every processor: here and in a process held to an older one's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measuring.plain_cpu import restricted
from tests.fresh_process import run_fresh

WORKER = """
import hashlib
import numpy as np
import tensorflow as tf
import meshtf as mtf

mtf.virtual_cpus(2)
SHAPE = "row:6 col:1001"


def drawn(mesh):
    uniform = mtf.random_uniform(mesh, SHAPE)
    normal = mtf.random_normal(mesh, SHAPE)
    initializers = {
        "normal": mtf.RandomNormal(stddev=0.3),
        "truncated": mtf.TruncatedNormal(stddev=0.3),
        "uniform": mtf.RandomUniform(-1.0, 1.0),
    }
    own = [mtf.get_variable(mesh, name, SHAPE, initializer=i) for name, i in initializers.items()]
    chosen = mtf.sample_with_temperature(uniform, "col", 0.7)
    return [uniform, normal, mtf.dropout(normal, True, rate=0.3), mtf.random_normal(mesh, SHAPE, dtype=tf.bfloat16),
            mtf.cast(chosen, tf.float32), *own]


step = mtf.function(drawn, mtf.SpmdMeshImpl("all:2", "row:all"), inputs={}, seed=3)
for array in step():
    print("bits", hashlib.sha256(array.numpy().tobytes()).hexdigest())
print("product", tf.matmul(tf.ones([1, 1031], tf.bfloat16), tf.ones([1031, 1], tf.bfloat16)).numpy().item())
"""


def test_random_bits_and_initial_values_are_the_same() -> None:
    native, plain = native_output(), plain_output()
    assert native[:-1] == plain[:-1]
    assert len(set(native)) == 9
    assert plain[-1] == "product 1024.0", "the second process was no plain one: there TensorFlow cuts products off"


def native_output() -> list[str]:
    done = run_fresh(["-c", WORKER])
    assert done.status == 0, done.stderr
    return told(done.stdout)


def plain_output() -> list[str]:
    """Of an interpreter that compiles for itself: the libraries choose their kernels when they are imported."""
    done = subprocess.run(
        [sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=500, check=False,
        env=restricted({**os.environ, "TF_XLA_FLAGS": ""}), cwd=Path(__file__).parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return told(done.stdout)


def told(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("bits", "product"))]
