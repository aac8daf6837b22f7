"""A cache in int8 gives what NumPy's numbers and scales of each head and position stand for, under every layout."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, Int8KeyValueCache
from meshtf.layers.attention import KeyValueCache
from meshtf.layers.attention.caches.int8_cache import chosen_cache
from meshtf.quantization import Quantization, quantized_weights
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

CONFIG = AttentionConfig(num_heads=2, d_kv=4)
KEYS = np.random.default_rng(0).normal(size=[3, 6, 2, 4]).astype(np.float32)
LAYOUTS = ["", "memory_length:rows;heads:cols", "d_kv:rows;batch:cols"]


@pytest.mark.parametrize("window", [None, 4])
def test_what_is_read_is_what_was_written_in_int8(window: int | None) -> None:
    """Two tokens one by one behind four at once. A window of 4 has the last four, each at its place modulo 4."""

    def body(k: mtf.Tensor) -> list[mtf.Tensor]:
        cache = Int8KeyValueCache.empty_like(KeyValueCache.empty(k.mesh, "batch:3", 6, CONFIG, window=window))
        first = mtf.slice(k, 0, 4, "memory_length")
        cache = cache.write(mtf.range(k.mesh, first.shape["memory_length"]), first, -first)
        for position in (4, 5):
            one = mtf.gather(k, mtf.constant(k.mesh, position, dtype="int32"), "memory_length")
            cache = cache.write(mtf.constant(k.mesh, position, dtype="int32"), one, -one)
        return [cache.k, cache.v]

    scale = np.abs(KEYS).max(-1, keepdims=True) / np.float32(127)
    expected = (np.rint(KEYS / scale) * scale).astype(np.float32)
    if window:
        expected = expected[:, [4, 5, 2, 3]]
    expected = expected.transpose(0, 2, 1, 3)
    for layout in LAYOUTS:
        inputs = {"k": ("batch:3 memory_length:6 heads:2 d_kv:4", KEYS)}
        k, v = interpret(body, inputs, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(k, expected)
        np.testing.assert_array_equal(v, -expected)


def test_the_policy_chooses_the_cache() -> None:
    assert chosen_cache() is KeyValueCache
    with mtf.Graph() as graph:
        mtf.Mesh(graph)
        with quantized_weights():
            assert chosen_cache() is KeyValueCache
        with quantized_weights(Quantization(cache="int8")):
            assert chosen_cache() is Int8KeyValueCache
