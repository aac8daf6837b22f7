"""Halo exchange against TensorFlow, and what it sends."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import interpret, plan
from tests.house.sharpest import sharpest

RNG = np.random.default_rng(0)


def with_halo(x: tf.Tensor, left: int, right: int, wrap: bool) -> tf.Tensor:
    """Of [a, blocks, block]."""
    blocks, block = x.shape[1], x.shape[2]
    flat = tf.reshape(x, [x.shape[0], -1])
    n = blocks * block
    reach = -(-max(left, right, 1) // n) if wrap else 0
    wide = tf.tile(flat, [1, 2 * reach + 1]) if wrap else tf.pad(flat, [[0, 0], [left, right]])
    first = reach * n if wrap else left
    return tf.stack(
        [wide[:, first + b * block - left : first + (b + 1) * block + right] for b in range(blocks)], axis=1
    )


@pytest.mark.parametrize(
    ("halo", "wrap"),
    sharpest(itertools.product([1, 3, 4, 7], [True, False]), [(1, False), (3, True), (4, False), (7, True)]),
)
def test_halo_exchange_and_its_gradients(agrees: Any, halo: int, wrap: bool) -> None:
    x = RNG.standard_normal((4, 8, 4))
    agrees(
        lambda x: [
            mtf.halo_exchange(x, ("blocks", 8), "block", halo, wrap),
            mtf.left_halo_exchange(x, "blocks", ("block", 4), halo, wrap),
        ],
        lambda x: [with_halo(x, halo, halo, wrap), with_halo(x, halo, 0, wrap)],
        {"x": ("a:4 blocks:8 block:4", x)},
        ["", "blocks:rows", "blocks:cols+rows", "a:rows;blocks:cols"],
    )


def test_halo_of_blocks_that_are_split_themselves(agrees: Any) -> None:
    agrees(
        lambda x: mtf.halo_exchange(x, "blocks", "block", 1),
        lambda x: with_halo(x, 1, 1, False),
        {"x": ("a:4 blocks:8 block:4", RNG.standard_normal((4, 8, 4)))},
        ["block:rows", "block:rows;blocks:cols"],
    )


@pytest.mark.parametrize("halo", [1, 3, 4, 5, 9])
def test_a_halo_exchange_sends_the_border_and_no_more(halo: int) -> None:
    specs = {"x": mtf.TensorSpec("blocks:16 block:4", tf.float32)}
    planned = plan(lambda x: mtf.halo_exchange(x, "blocks", "block", halo), specs, "rows:2;cols:4", "blocks:cols+rows")
    # Two blocks of 4 a core: of its last block the right halo, of its first the left one.
    inner = [c for c in range(8) if 8 * c - halo >= 0 and 8 * (c + 1) + halo <= 64]
    lacking = max(len({i for i in range(8 * c - halo, 8 * c + 8 + halo) if not 8 * c <= i < 8 * c + 8}) for c in inner)
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
    assert sent == lacking * 4


def test_errors_say_what_is_wrong() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "blocks:4 block:8")
    with pytest.raises(ShapeError, match=r'dimension "block" cannot be both'):
        mtf.halo_exchange(x, "block", "block", 1)
    with pytest.raises(ShapeError, match=r"halo_size must be at least 0, and is -1"):
        mtf.halo_exchange(x, "blocks", "block", -1)


@pytest.mark.parametrize("wrap", [False, True])
def test_halos_of_no_blocks(wrap: bool) -> None:
    inputs = {"x": ("blocks:0 block:3", np.zeros([0, 3], np.float32))}
    done = interpret(lambda x: mtf.halo_exchange(x, "blocks", "block", 4, wrap), inputs, "rows:2", "blocks:rows")
    assert done.results.shape == (0, 11)
