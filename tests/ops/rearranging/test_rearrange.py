"""rearrange makes the operations that a user would write, and so has their layouts and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf

X = np.random.default_rng(0).standard_normal((4, 12))
INPUT = {"x": ("batch:4 hidden:12", X)}

Program = Callable[[mtf.Tensor], mtf.Tensor]


def operations_of(program: Program, shape: str) -> list[str]:
    graph, result = mtf.testing.build(program, {"x": mtf.TensorSpec(shape)})
    return [f"{type(op).__name__} {op.inputs} {op.outputs}" for op in graph.operations] + [repr(result)]


SAME: list[tuple[str, str, Program, Program]] = [
    ("split", "batch:4 d_model:6",
     lambda x: mtf.rearrange(x, "batch (heads d_kv) -> batch heads d_kv", heads=2),
     lambda x: mtf.reshape(x, "batch heads:2 d_kv:3")),
    ("merge", "batch:4 heads:2 d_kv:3",
     lambda x: mtf.rearrange(x, "batch heads d_kv -> batch (d_model: heads d_kv)"),
     lambda x: mtf.reshape(x, "batch d_model:6")),
    ("order", "batch:4 heads:2 d_kv:3",
     lambda x: mtf.rearrange(x, "batch ... d_kv -> d_kv batch ..."),
     lambda x: mtf.transpose(x, "d_kv batch heads")),
    ("split and order", "batch:4 d_model:6",
     lambda x: mtf.rearrange(x, "batch (heads d_kv) -> heads batch d_kv", heads=2),
     lambda x: mtf.transpose(mtf.reshape(x, "batch heads:2 d_kv:3"), "heads batch d_kv")),
    ("all three", "batch:4 d_model:6 n:5",
     lambda x: mtf.rearrange(x, "batch (heads d_kv) n -> n (rows: heads batch) d_kv", heads=2),
     lambda x: mtf.reshape(
         mtf.transpose(mtf.reshape(x, "batch heads:2 d_kv:3 n"), "n heads batch d_kv"), "n rows:8 d_kv")),
    ("repeat", "batch:4 n:5",
     lambda x: mtf.rearrange(x, "batch n -> copies:2 batch n"),
     lambda x: mtf.broadcast(x, "copies:2 batch n")),
    ("rename", "batch:4 length:5",
     lambda x: mtf.rearrange(x, "batch length -> batch (memory: length)"),
     lambda x: mtf.reshape(x, "batch memory:5")),
    ("nothing", "batch:4 length:5", lambda x: mtf.rearrange(x, "batch ... -> batch ..."), lambda x: x),
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize(("shape", "new", "old"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
def test_a_pattern_builds_what_operations_would(shape: str, new: Program, old: Program) -> None:
    assert operations_of(new, shape) == operations_of(old, shape)


def test_a_dimension_that_is_split_over_an_axis(agrees: Any) -> None:
    """As reshape does: the parts move to the layout that the rules give to the factors, forwards and backwards."""
    agrees(
        lambda x: mtf.rearrange(x, "batch (heads d_kv) -> (rows: heads batch) d_kv", heads=4),
        lambda x: tf.reshape(tf.transpose(tf.reshape(x, [4, 4, 3]), [1, 0, 2]), [16, 3]),
        INPUT,
        ["hidden:rows;heads:rows", "hidden:rows", "batch:rows;hidden:cols;rows:cols", "heads:cols"],
    )


def test_repeats_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    agrees_on_many_meshes(
        lambda x: mtf.rearrange(x, "batch hidden -> (batch: batch 3) hidden"),
        lambda x: tf.repeat(x, 3, axis=0),
        INPUT,
    )
