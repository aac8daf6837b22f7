"""reduce makes a reshape, a reduction and a reshape, and so has their layouts and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.ops.rearranging.test_rearrange import operations_of

IMAGE = np.random.default_rng(0).standard_normal((2, 4, 4, 3))
INPUT = {"x": ("batch:2 h:4 w:4 c:3", IMAGE)}
POOL = "batch (h 2) (w 2) c -> batch h w c"


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_a_pattern_builds_what_operations_would(kind: str) -> None:
    reduction = getattr(mtf, f"reduce_{kind}")

    def written_out(x: mtf.Tensor) -> mtf.Tensor:
        return reduction(mtf.reshape(x, "batch h:2 h_2:2 w:2 w_2:2 c"), output_shape="batch h w c")

    assert operations_of(lambda x: mtf.reduce(x, POOL, kind), "batch:2 h:4 w:4 c:3") == operations_of(
        written_out, "batch:2 h:4 w:4 c:3"
    )


@pytest.mark.quick
def test_flags() -> None:
    with mtf.Graph() as graph:
        flags = mtf.placeholder(mtf.Mesh(graph), "batch:4 hidden:6", tf.bool)
        assert mtf.reduce(flags, "... hidden -> ...", "any").shape == mtf.Shape("batch:4")
        assert mtf.reduce(flags, "batch (hidden 2) -> hidden", "all").operation.name == "reduce_all"


def test_pooling_under_layouts(agrees: Any) -> None:
    agrees(lambda x: mtf.reduce(x, POOL, "max"), lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), INPUT, order=1)


def test_a_mean_that_merges_and_repeats(agrees: Any) -> None:
    agrees(
        lambda x: mtf.reduce(x, "batch h (w 2) c -> copies:2 (image: h w) c batch", "mean"),
        _mean_in_tensorflow,
        INPUT,
    )


def _mean_in_tensorflow(x: tf.Tensor) -> tf.Tensor:
    mean = tf.reduce_mean(tf.reshape(x, [2, 4, 2, 2, 3]), 3)
    return tf.repeat(tf.transpose(tf.reshape(mean, [1, 2, 8, 3]), [0, 2, 3, 1]), 2, 0)
