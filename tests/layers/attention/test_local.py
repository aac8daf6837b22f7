"""What local attention is for: cost that is linear in length, and borders that are all that moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import Sizes

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.layers import (
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    Tokens,
    dot_product_attention,
    lean_attention,
    local_attention,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest

WINDOW = AttentionMask(is_causal=True, window=16)


def program_of(attend: Callable[..., mtf.Tensor], mask: AttentionMask = WINDOW) -> Any:
    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor | None]:
        y = attend(q, k, v, AttentionPattern.within(Tokens.along(q), mask))
        return mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])

    return program


def report(attend: Callable[..., mtf.Tensor], length: int, mesh: str = "rows:1", layout: str = "", of: str = "") -> Any:
    """Of a training step. of: the name of the keys' length, if it is not `memory_length`."""
    sizes = Sizes(length=length, memory_length=length)
    k = sizes.k.rename_dimension("memory_length", of) if of else sizes.k
    specs = {"q": mtf.TensorSpec(sizes.q), "k": mtf.TensorSpec(k), "v": mtf.TensorSpec(k)}
    return mtf.function(program_of(attend), mtf.SpmdMeshImpl(mesh, layout), inputs=specs).report()


def test_work_and_memory_grow_with_length() -> None:
    short, long = (report(local_attention, n) for n in (128, 512))
    assert long.flops_per_core == pytest.approx(4 * short.flops_per_core, rel=0.01)
    assert long.memory.peak == pytest.approx(4 * short.memory.peak, rel=0.02)
    assert report(dot_product_attention, 512).flops_per_core > 10 * long.flops_per_core


def test_positions_that_begin_anew_in_every_segment() -> None:
    own = np.repeat([1, 2, 3, 0], [3, 9, 2, 2]).astype(np.int32)[None]
    positions = np.concatenate([np.arange(n) for n in (3, 9, 2, 2)]).astype(np.int32)[None]

    def program(q: Any, k: Any, v: Any, own: Any, positions: Any) -> list[mtf.Tensor]:
        mask = AttentionMask(is_causal=True, window=4)
        pattern = AttentionPattern.within(Tokens(positions, own), mask)
        return [attend(q, k, v, pattern) for attend in (local_attention, dot_product_attention)]

    sizes = Sizes(batch=1, length=16, memory_length=16)
    inputs = {**sizes.operands(), "own": (sizes.q[:2], own), "positions": (sizes.q[:2], positions)}
    for layout in ["", "length:rows"]:
        local, plain = interpret(program, inputs, "rows:2", layout).results
        assert_close(local, plain, terms=sizes.terms)


@pytest.mark.parametrize("cores", sharpest([2, 3, 4, 6, 8, 12], [3, 8, 12]))
def test_lengths_that_divide_over_the_cores_stay_so(cores: int) -> None:
    """Of 24 and 48 tokens, whatever the window; and blocks of a memory that lean attention cuts."""

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor]:
        tokens = Tokens.along(q)
        windows = [AttentionPattern.within(tokens, AttentionMask(True, n)) for n in (3, 20)]
        local = [local_attention(q, k, v, pattern) for pattern in windows]
        return [*local, lean_attention(q, k, v, AttentionPattern(), block_size=24)]

    for length in (24, 48):
        sizes = Sizes(batch=1, length=length, memory_length=length)
        specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in sizes.operands().items()}
        for layout in ("length:rows", "memory_length:rows"):
            assert plan(program, specs, f"rows:{cores}", layout).instructions


@pytest.mark.parametrize(
    ("layout", "of", "bytes_of_token"), [("length:rows;memory_length:rows", "", 0), ("length:rows", "length", 4)]
)
def test_only_borders_move(layout: str, of: str, bytes_of_token: int) -> None:
    """And positions, where they are not split as the keys are."""
    short, long = (report(local_attention, n, "rows:4", layout, of) for n in (128, 512))
    sent = [sum(c.bytes_sent for c in r.collectives) for r in (short, long)]
    border = 2 * 2 * 4 * 15 * 4  # bytes of 15 positions of k or v: batch 2, 2 heads, d_kv 4
    assert 0 <= sent[1] - sent[0] <= (512 - 128) * bytes_of_token
    assert 0 < sent[0] <= 5 * border


@pytest.mark.long
def test_on_devices() -> None:
    mask = AttentionMask(window=3)

    def program(q: Any, k: Any, v: Any) -> mtf.Tensor:
        return local_attention(q, k, v, AttentionPattern.within(Tokens.along(q), mask))

    layouts = ["length:rows;memory_length:rows;heads:cols", "length:rows+cols"]
    assert_layout_invariant(program, Sizes(length=16, memory_length=16).operands(), layouts)


@pytest.mark.parametrize("attend", [dot_product_attention, local_attention])
@pytest.mark.parametrize("together", [(), ("length",), ("memory_length", "heads")])
def test_dropout_keeps_the_mean(attend: Callable[..., mtf.Tensor], together: tuple[str, ...]) -> None:
    """Of ones, the result is the sum of the weights that are kept: 1 on average, the same where dropped together."""
    sizes = Sizes(batch=64, length=16, memory_length=16)
    options = AttentionOptions(dropout_rate=0.25, dropout_broadcast_dims=together)
    mask = AttentionMask(is_causal=True, window=4)

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens.along(q), mask)
        operands = q * 0.0, k, mtf.ones_like(v)
        return [attend(*operands, pattern, options, is_training=training) for training in (True, False)]

    dropped, kept = interpret(program, sizes.operands(), "rows:1").results
    assert_close(kept, 1.0, terms=(FUNCTION_TERMS, 16, 16))
    assert dropped.mean() == pytest.approx(1.0, abs=0.05)
    if "memory_length" in together:
        assert {*np.unique(dropped.round(4))} == {0.0, np.float32(1.3333)}
        np.testing.assert_array_equal(dropped[:, :, 0], dropped[:, :, 1])
    else:
        assert len(np.unique(dropped[:, 5:].round(4))) >= 4  # 0 to 4 of 4 weights
        firsts = dropped[:, 0].ravel()  # of one weight each, for which all rows of a batch draw alike or do not
        assert {*np.unique(firsts.round(4))} == {0.0, np.float32(1.3333)}


def refused(mask: AttentionMask, memory_length: int = 8) -> None:
    graph = mtf.Graph()
    with graph:
        sizes = Sizes(memory_length=memory_length)
        q, k = (mtf.zeros(mtf.Mesh(graph), shape, tf.float32) for shape in (sizes.q, sizes.k))
        tokens = Tokens.along(q)
        local_attention(q, k, k, AttentionPattern(mask, tokens, tokens.as_memory()))


def test_what_is_refused() -> None:
    with pytest.raises(GraphError, match=r"has none; give one, or use lean_attention"):
        refused(AttentionMask(is_causal=True))
    with pytest.raises(
        ShapeError, match=r"is self-attention, so it needs as many keys as queries; there are 8 queries and 9 keys"
    ):
        refused(WINDOW, memory_length=9)
