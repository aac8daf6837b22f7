"""Attention to keys and values that stay where they are, against caches that are put in the order of the hypotheses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import (
    AttentionConfig,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    BeamSlots,
    KeyValueCache,
    RelativePositionBias,
    Tokens,
    dot_product_attention,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

BATCH, BEAM = mtf.Dimension("batch", 2), mtf.Dimension("beam", 4)
STEPS, ROOM, D_KV = 5, 8, 4
CONFIGS = {
    "multi-head": AttentionConfig(2, D_KV),
    "multi-query": AttentionConfig(4, D_KV, num_kv_heads=1),
    "grouped-query": AttentionConfig(4, D_KV, num_kv_heads=2),
}
IS_WRITTEN = np.array([[True] * STEPS, [False, False, *[True] * (STEPS - 2)]])


def operands(config: AttentionConfig) -> dict[str, Any]:
    """Queries, keys and values of each step, and from which beams the hypotheses behind it come."""
    rng, rows = np.random.default_rng(0), mtf.Shape([("steps", STEPS), BATCH, BEAM])
    shapes = {"q": rows + config.query_heads + [config.d_kv_dim]}
    shapes |= dict.fromkeys("kv", rows + config.memory_heads + [config.d_kv_dim])
    arrays: dict[str, Any] = {n: (s, rng.normal(size=s.to_integer_list).astype(np.float32)) for n, s in shapes.items()}
    sources = rng.integers(BEAM.size, size=rows.to_integer_list).astype(np.int32)
    return {**arrays, "sources": (rows, sources)}


def reordered(x: mtf.Tensor, sources: mtf.Tensor) -> mtf.Tensor:
    """x [.., beam, ..] in the order of the hypotheses."""
    kept = mtf.rename_dimension(sources, "beam", "kept")
    shape = mtf.Shape([("kept", d.size) if d == BEAM else d for d in x.shape])
    return mtf.rename_dimension(mtf.gather(x, kept, BEAM, output_shape=shape), "kept", "beam")


def steps(config: AttentionConfig, window: int | None, options: AttentionOptions) -> Any:
    """Each step's attention with slots, and with caches that are gathered."""
    mask = AttentionMask(is_causal=True, window=window)

    def program(
        q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, sources: mtf.Tensor, is_written: mtf.Tensor
    ) -> list[tuple[mtf.Tensor, mtf.Tensor]]:
        mesh, dims, results = q.mesh, mtf.Shape([BATCH, BEAM]), []
        bias = RelativePositionBias.make(mesh, config, 8, 6, is_bidirectional=False)
        still = KeyValueCache.empty(mesh, dims, ROOM, config, window=window, beam=BEAM)
        moved = KeyValueCache.empty(mesh, dims, ROOM, config, window=window)
        slots = BeamSlots.start(mesh, dims, ROOM, BEAM)
        each = [mtf.unstack(x, "steps") for x in (q, k, v, sources, is_written)]
        for step, (query, key, value, source, is_here) in enumerate(zip(*each, strict=True)):
            now = mtf.constant(mesh, step, dtype=tf.int32)
            writes_at = mtf.where(is_here, now, -1)
            slots = slots.written(writes_at)
            still = still.write(writes_at, slots.own(key), slots.own(value))
            moved = moved.write(writes_at, key, value)
            pattern = AttentionPattern(mask, Tokens(now), moved.tokens(now), bias)
            results.append(
                (
                    slots.attention(query, still.k, still.v, pattern, options),
                    dot_product_attention(query, moved.k, moved.v, pattern, options),
                )
            )
            slots = BeamSlots(reordered(slots.holders, source), BEAM)
            moved = moved.with_tensors([reordered(x, source) for x in moved.tensors])
        return results

    return program


@pytest.mark.parametrize(
    ("kind", "window", "options", "layout"),
    [
        pytest.param("multi-head", None, AttentionOptions(), "", marks=pytest.mark.long),
        ("multi-head", 3, AttentionOptions(logit_cap=2.0), "batch:rows;heads:cols"),
        ("multi-query", ROOM, AttentionOptions(extra_logit=0.5), "beam:rows;memory_length:cols"),
        pytest.param("multi-query", None, AttentionOptions(), "beam_slots:rows;heads:cols", marks=pytest.mark.long),
        ("grouped-query", 3, AttentionOptions(), "memory_length:rows+cols"),
        pytest.param("grouped-query", None, AttentionOptions(), "positions:rows;d_kv:cols", marks=pytest.mark.long),
    ],
)
def test_slots_are_caches_in_order(kind: str, window: int | None, options: AttentionOptions, layout: str) -> None:
    """Hypotheses move at random; of one row the first positions are not written, and are the same in all beams."""
    config = CONFIGS[kind]
    inputs = operands(config) | {"is_written": ([BATCH, ("steps", STEPS)], IS_WRITTEN)}
    largest = max(np.abs(inputs[name][1]).max() for name in "qk")
    terms = (int(np.ceil(D_KV * largest**2)) * D_KV, FUNCTION_TERMS, 2 * ROOM, BEAM.size * ROOM)
    for with_slots, in_order in interpret(steps(config, window, options), inputs, "rows:2;cols:2", layout).results:
        assert_close(with_slots, in_order, terms=terms)


def test_a_cache_has_a_matrix_of_all_slots_for_each_head() -> None:
    graph = mtf.Graph()
    with graph:
        mesh, config = mtf.Mesh(graph), CONFIGS["multi-head"]
        cache = KeyValueCache.empty(mesh, mtf.Shape([BATCH, BEAM]), ROOM, config, beam=BEAM)
        assert cache.k.shape == mtf.convert_to_shape("batch:2 heads:2 beam_slots:4 memory_length:8 d_kv:4")
        slots, q = BeamSlots.start(mesh, mtf.Shape([BATCH, BEAM]), ROOM, BEAM), mtf.ones(mesh, "batch:2 d_kv:4")
        with pytest.raises(ShapeError, match='has dimension "heads", which q'):
            slots.attention(
                q,
                cache.k,
                cache.v,
                AttentionPattern(memory=cache.tokens(mtf.ones(mesh, [], tf.int32))),
                AttentionOptions(),
            )
