"""Random bits and initial values are the same on every processor: they are written down here."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf

SHAPE = "row:6 col:1001"
DIGESTS = {
    "uniform": "945a35b180577009",
    "normal": "042c49052f22151e",
    "dropout": "757b8b7642da9fdb",
    "bfloat16": "9fe380c97ba5ff81",
    "sampled": "e3a8ae1f5568759d",
    "initial normal": "3f13b000a9938e6f",
    "initial truncated": "5f0cc43cb90e8dc5",
    "initial uniform": "40833fe7cb46c96d",
}
"""The first 8 bytes of SHA-256, in hexadecimal."""


def drawn(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    uniform, normal = mtf.random_uniform(mesh, SHAPE), mtf.random_normal(mesh, SHAPE)
    initializers = {
        "initial normal": mtf.RandomNormal(stddev=0.3),
        "initial truncated": mtf.TruncatedNormal(stddev=0.3),
        "initial uniform": mtf.RandomUniform(-1.0, 1.0),
    }
    return {
        "uniform": uniform,
        "normal": normal,
        "dropout": mtf.dropout(normal, True, rate=0.3),
        "bfloat16": mtf.random_normal(mesh, SHAPE, dtype=tf.bfloat16),
        "sampled": mtf.sample_with_temperature(uniform, "col", 0.7),
        **{name: mtf.get_variable(mesh, name, SHAPE, initializer=x) for name, x in initializers.items()},
    }


@pytest.mark.plain_cpu
def test_random_bits_and_initial_values_are_the_same() -> None:
    """Also as on a CPU without AVX-512. What changes a digest gives every resumed run other random numbers."""
    step = mtf.function(drawn, mtf.SpmdMeshImpl("all:2", "row:all"), inputs={}, seed=3)
    found = {name: np.asarray(x).tobytes() for name, x in step().items()}
    assert {name: hashlib.sha256(bits).hexdigest()[:16] for name, bits in found.items()} == DIGESTS
