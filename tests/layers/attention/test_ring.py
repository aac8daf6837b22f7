"""What ring attention is for: what it sends, holds and leaves undone; and dropout, higher derivatives, lengths."""

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
    ring_attention,
)
from meshtf.lowering.report.report import Report
from meshtf.testing import assert_close, assert_layout_invariant, interpret
from tests.house.sharpest import sharpest

CAUSAL = AttentionMask(is_causal=True)
BLOCKS = 4


def over_length(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.rename_dimension(x, "memory_length", "length")


def program(
    attend: Callable[..., mtf.Tensor], mask: AttentionMask = CAUSAL, *, is_packed: bool = False, **more: Any
) -> Callable[..., Any]:
    def attended(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> list[mtf.Tensor | None]:
        length = q.shape.get_dim_by_name("length")
        is_second = mtf.greater(mtf.range(q.mesh, length), length.size // 3)
        segments = 1 + mtf.cast(is_second, tf.int32) if is_packed else None
        y = attend(q, k, v, AttentionPattern.within(Tokens.along(q, segments), mask), **more)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    return attended


def report(mask: AttentionMask, mesh: str, layout: str, *, is_trained: bool = True, **options: Any) -> Report:
    sizes = Sizes(length=64, memory_length=64, heads=2, queries_per_head=2, d_kv=8)
    shapes = {"q": sizes.q, "k": over_length_shape(sizes.k), "v": over_length_shape(sizes.k)}

    def attended(**operands: mtf.Tensor) -> Any:
        every = program(ring_attention, mask, **{"num_blocks": BLOCKS, **options})(**operands)
        return every if is_trained else every[0]

    specs = {name: mtf.TensorSpec(shape) for name, shape in shapes.items()}
    return mtf.function(attended, mtf.PlanMeshImpl(mesh, layout), inputs=specs).report()


def over_length_shape(shape: mtf.Shape) -> mtf.Shape:
    return mtf.Shape([("length", d.size) if d.name == "memory_length" else d for d in shape])


@pytest.mark.parametrize("mask", [CAUSAL, AttentionMask()], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("num_blocks", [BLOCKS, 2 * BLOCKS])
def test_keys_and_values_go_round_once_and_with_their_gradients_once_more(mask: AttentionMask, num_blocks: int) -> None:
    """n - 1 times a core's part of keys and values forward; back those and their gradients. None is gathered."""
    part = 2 * 64 * 2 * 8 * 4 // BLOCKS  # bytes of a core's keys
    block, rounds = part * BLOCKS // num_blocks, num_blocks - 1
    for is_trained, tensors in ((False, 2), (True, 6)):
        found = report(mask, "rows:4", "length:rows", is_trained=is_trained, num_blocks=num_blocks)
        travelling = [c for c in found.collectives if "roll" in c.operation and "d_kv" in c.shape]
        assert [c.kind for c in travelling] == ["permute"] * tensors
        assert sum(c.bytes_sent for c in travelling) == tensors * rounds * block
        others = [c for c in found.collectives if c not in travelling and "d_kv" in c.shape]
        # Of queries, keys, values and results half moves once, to be balanced, and so do their gradients.
        assert {c.kind for c in others} <= {"permute"}
        moved = {CAUSAL: (2 * part + 2 * 2 * part) // 2 * (1 + is_trained)}.get(mask, 0)
        assert sum(c.bytes_sent for c in others) == moved


def test_scores_are_never_whole_and_what_lies_ahead_is_not_computed() -> None:
    """Of 2n x 2n parts of a causal matrix 2n^2 + n are computed, as many by each of n cores; nothing is repeated."""
    causal, whole = (report(mask, "rows:4", "length:rows") for mask in (CAUSAL, AttentionMask()))
    assert causal.flops_per_core < 0.75 * whole.flops_per_core  # of products (2n + 1) / 4n; beside them exponentials
    assert causal.repeated_flops_per_core < 0.001 * causal.flops_per_core
    scores = 2 * 4 * 64 * 64 * 4 // 4  # bytes of a core's rows
    assert causal.memory.peak < whole.memory.peak < 4.5 * scores
    dropped = report(CAUSAL, "rows:4", "length:rows", options=AttentionOptions(0.1), is_training=True)
    assert dropped.memory.peak < whole.memory.peak  # which weights are kept is drawn where they are, and never sent
    assert sum(c.bytes_sent for c in dropped.collectives) == sum(c.bytes_sent for c in causal.collectives)


@pytest.mark.parametrize(
    ("together", "mask", "length"),
    sharpest(
        [
            (("length",), CAUSAL, 8),
            (("memory_length",), CAUSAL, 8),
            (("length", "memory_length", "heads"), CAUSAL, 8),
            (("heads",), AttentionMask(), 8),
            ((), CAUSAL, 13),
        ],
        [(("memory_length",), CAUSAL, 8), ((), CAUSAL, 13)],
    ),
)
def test_dropout_drops_what_the_plain_form_drops(together: tuple[str, ...], mask: AttentionMask, length: int) -> None:
    """Of grouped heads; with each weight by itself, of two packed sequences that do not divide into the blocks."""
    sizes = Sizes(length=length, memory_length=length, queries_per_head=2)
    options: dict[str, Any] = {"options": AttentionOptions(0.5, together), "is_training": True}
    is_packed = not together
    plain = program(dot_product_attention, mask, is_packed=is_packed, **options)
    plain = interpret(plain, sizes.operands(), "rows:1").results
    dropped = program(ring_attention, mask, is_packed=is_packed, num_blocks=BLOCKS, **options)
    layout = "length:rows+cols" if is_packed else "length:rows;heads:cols"
    found = interpret(dropped, sizes.operands(), "rows:2;cols:2", layout).results
    for one, wanted in zip(found, plain, strict=True):
        assert_close(one, wanted, terms=sizes.gradient_terms)


@pytest.mark.parametrize(
    ("length", "num_blocks", "mask"),
    sharpest(
        [(*sizes, mask) for sizes in ((7, 2), (13, 3), (5, 4), (8, 1)) for mask in (CAUSAL, AttentionMask())],
        [(7, 2, CAUSAL), (5, 4, CAUSAL), (13, 3, AttentionMask())],
    ),
)
def test_lengths_that_do_not_divide(length: int, num_blocks: int, mask: AttentionMask) -> None:
    sizes = Sizes(batch=1, length=length, memory_length=length)
    plain = interpret(program(dot_product_attention, mask), sizes.operands(), "rows:1").results
    ring = interpret(program(ring_attention, mask, num_blocks=num_blocks), sizes.operands(), "rows:1").results
    for found, wanted in zip(ring, plain, strict=True):
        assert_close(found, wanted, terms=sizes.gradient_terms)


def test_second_derivatives() -> None:
    def second(q: Any, k: Any, v: Any) -> list[list[mtf.Tensor | None]]:
        found = []
        for attend, more in ((dot_product_attention, {}), (ring_attention, {"num_blocks": 2})):
            first = program(attend, **more)(q, k, v)[1:]
            total = mtf.add_n([mtf.reduce_sum(mtf.square(g)) for g in first])
            found.append(mtf.gradients(total, [q, k, v]))
        return found

    sizes = Sizes(batch=1, heads=1)
    plain, ring = interpret(second, sizes.operands(), "rows:2", "length:rows").results
    for found, wanted in zip(ring, plain, strict=True):
        assert_close(found, wanted, terms=2 * sizes.gradient_terms)


@pytest.mark.long
def test_on_devices() -> None:
    def attended(q: Any, k: Any, v: Any) -> mtf.Tensor:
        return ring_attention(q, k, v, AttentionPattern.within(Tokens.along(q), CAUSAL), num_blocks=2)

    assert_layout_invariant(attended, Sizes().operands(), ["length:rows;memory_length:rows;heads:cols"])


def refused(*, memory_length: int = 8, **more: Any) -> None:
    sizes, graph = Sizes(memory_length=memory_length), mtf.Graph()
    with graph:
        q, k = (mtf.zeros(mtf.Mesh(graph), shape) for shape in (sizes.q, sizes.k))
        ring_attention(q, k, k, AttentionPattern(), **more)


def test_what_is_refused() -> None:
    with pytest.raises(
        ShapeError,
        match="ring attention is self-attention, so it needs as many keys as queries; there are 8 queries and 6 keys",
    ):
        refused(memory_length=6)
    with pytest.raises(GraphError, match="num_blocks must be at least 1, and is 0"):
        refused(num_blocks=0)


def test_all_keys_at_once_would_be_gathered() -> None:
    """What the ring is measured against: every core's queries with all keys."""
    sizes = Sizes(length=64, memory_length=64)
    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in sizes.operands().items()}

    def attended(q: Any, k: Any, v: Any) -> mtf.Tensor:
        ways = {name: over_length(x) for name, x in {"k": k, "v": v}.items()}
        pattern = AttentionPattern.within(Tokens.along(q), CAUSAL)
        return lean_attention(q, *(mtf.rename_dimension(x, "length", "memory_length") for x in ways.values()), pattern)

    found = mtf.function(attended, mtf.PlanMeshImpl("rows:4", "length:rows"), inputs=specs).report()
    assert "all_gather" in {c.kind for c in found.collectives if "d_kv" in c.shape}
    assert np.isfinite(found.memory.peak)
