"""Keys of rows: a row's numbers depend on its key and the place along the dimension, and on nothing beside it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import random
from meshtf.ops.random.row_keys import prompt_key, prompt_keys, row_gumbel, row_uniform, with_count
from meshtf.testing import interpret

VOCAB = mtf.Dimension("vocab", 1028)


def program(x: mtf.Tensor) -> list[mtf.Tensor]:
    keys = with_count(prompt_keys(x.mesh, x.shape), mtf.range(x.mesh, ("samples", 2)))
    return [prompt_keys(x.mesh, x.shape), row_gumbel(with_count(keys, mtf.constant(5, dtype=tf.int32)), VOCAB)]


@pytest.mark.parametrize(
    "layout", [pytest.param("", marks=pytest.mark.long), "batch:rows;vocab:cols", "vocab:cols+rows"]
)
def test_numbers_are_those_of_the_key_at_each_place(layout: str) -> None:
    inputs = {"x": ("batch:4", np.zeros(4, np.float32))}
    keys, drawn = interpret(program, inputs, "rows:2;cols:2", layout, seed=7).results
    assert keys.tolist() == [prompt_key(7, number) for number in range(4)]
    key: random.Key = (0, 0)
    for data in (7, random.stable_hash("prompts"), 0, 2, 1, 5):
        key = random.fold_in(key, data)
    # The fifth sample's key: prompt 2, sample 1, position 5.
    np.testing.assert_array_equal(drawn[2, 1], random.gumbel(key, [0], [VOCAB.size], [VOCAB.size]).numpy())


def test_uniform_numbers_are_the_bits_of_the_keys() -> None:
    """53 of them, from the highest on, whatever the key's sign."""
    keys = np.array([0, -1, 2**62, -(2**63), 2**11, 2**11 - 1], np.int64)
    drawn = interpret(row_uniform, {"keys": ("batch:6", keys)}, "rows:2", "batch:rows").results
    np.testing.assert_array_equal(drawn, [0.0, 1 - 2.0**-53, 0.25, 0.5, 2.0**-53, 0.0])
