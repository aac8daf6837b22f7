"""Decoding with a cache, token by token, against attention over the whole sequence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import Sizes

import meshtf as mtf
from meshtf.errors import DtypeError, IndexRangeError, ShapeError
from meshtf.layers import (
    AttentionConfig,
    AttentionMask,
    AttentionPattern,
    KeyValueCache,
    RelativePositionBias,
    Tokens,
    dot_product_attention,
    rotary_embedding,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.house.sharpest import sharpest

LAYOUTS = [
    "",
    "batch:rows;heads:cols",
    "memory_length:rows;heads:cols",
    "d_kv:rows;batch:cols",
    "heads:rows;memory_length:cols",
    "memory_length:rows+cols",
]
VARIANTS = {
    "multi-head": (Sizes(), AttentionConfig(num_heads=2, d_kv=4)),
    "multi-query": (Sizes(is_shared=True), AttentionConfig(num_heads=2, num_kv_heads=1, d_kv=4)),
    "grouped-query": (Sizes(queries_per_head=2), AttentionConfig(num_heads=4, num_kv_heads=2, d_kv=4)),
}
MESH = "rows:2;cols:2"


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Attention with a relative bias, with rotated queries and keys if `is_rotary`."""

    config: AttentionConfig
    window: int | None
    is_rotary: bool = False

    def bias(self, mesh: mtf.Mesh) -> RelativePositionBias:
        with mtf.variable_scope("bias"):
            return RelativePositionBias.make(mesh, self.config, 8, 6, is_bidirectional=False)

    @property
    def mask(self) -> AttentionMask:
        return AttentionMask(is_causal=True, window=self.window)

    def turned(self, x: mtf.Tensor, positions: mtf.Tensor) -> mtf.Tensor:
        return rotary_embedding(x, positions) if self.is_rotary else x

    def whole(self, q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> mtf.Tensor:
        pattern = AttentionPattern.within(Tokens.along(q), self.mask, self.bias(q.mesh))
        q, k = self.turned(q, pattern.query.positions), self.turned(k, pattern.memory.positions)
        return dot_product_attention(q, k, v, pattern)

    def step(
        self, cache: KeyValueCache, position: mtf.Tensor, parts: list[mtf.Tensor], bias: RelativePositionBias
    ) -> tuple[KeyValueCache, mtf.Tensor]:
        q, k, v = parts
        cache = cache.write(position, self.turned(k, position), v)
        pattern = AttentionPattern(self.mask, Tokens(position), cache.tokens(position), bias)
        return cache, dot_product_attention(self.turned(q, position), cache.k, cache.v, pattern)

    def empty(self, q: mtf.Tensor) -> KeyValueCache:
        length = q.shape.get_dim_by_name("length").size
        return KeyValueCache.empty(q.mesh, q.shape[:1], length, self.config, window=self.window)


def along_length(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.rename_dimension(x, "memory_length", "length")


@pytest.mark.parametrize(
    ("variant", "window", "layout"),
    sharpest(
        [("multi-head", 4, layout) for layout in LAYOUTS]
        + [(variant, window, LAYOUTS[2]) for variant in VARIANTS for window in (None, 4)][1:]
        + [("grouped-query", None, LAYOUTS[3])],
        [
            *(("multi-head", 4, layout) for layout in LAYOUTS[2:6:3]),
            ("grouped-query", 4, LAYOUTS[2]),
            ("grouped-query", None, LAYOUTS[3]),
        ],
    ),
)
def test_token_by_token(variant: str, window: int | None, layout: str) -> None:
    sizes, config = VARIANTS[variant]
    decoder = Decoder(config, window, is_rotary=variant == "multi-head")

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> list[mtf.Tensor]:
        cache, bias = decoder.empty(q), decoder.bias(q.mesh)
        length = q.shape.get_dim_by_name("length")

        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            position, *operands = parts
            after, y = decoder.step(cache.with_tensors(carried), position, operands, bias)
            return after.tensors, [y]

        sliced = [mtf.range(q.mesh, length), q, along_length(k), along_length(v)]
        _, (y,) = mtf.scan(step, cache.tensors, sliced, length)
        whole = decoder.whole(q, k, v)
        return [mtf.transpose(y, whole.shape), whole]

    stepped, whole = interpret(program, sizes.operands(), MESH, layout).results
    assert_close(stepped, whole, terms=(*sizes.terms, 4 * FUNCTION_TERMS))


@pytest.mark.parametrize("layout", ["", "batch:rows;memory_length:cols"])
@pytest.mark.parametrize("window", [None, 4])
def test_prompts_of_different_lengths_at_once_then_tokens(window: int | None, layout: str) -> None:
    """Rows continue at positions of their own, after prompts of 2 and 6 tokens, the longer one above the window."""
    sizes, config = VARIANTS["grouped-query"]
    decoder = Decoder(config, window)
    prompt, prompts = mtf.Dimension("memory_length", 6), np.array([2, 6], np.int32)

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, prompts: mtf.Tensor) -> list[Any]:
        bias, index = decoder.bias(q.mesh), mtf.range(q.mesh, prompt)
        places = mtf.where(mtf.less(index, prompts), index, -1)
        cache = decoder.empty(q).write(places, *(mtf.slice(x, 0, 6, prompt.name) for x in (k, v)))
        ys = []
        for n in range(2):
            position = prompts + n
            parts = [mtf.gather(x, position, "length") for x in (q, along_length(k), along_length(v))]
            cache, y = decoder.step(cache, position, parts, bias)
            ys.append((y, mtf.gather(decoder.whole(q, k, v), position, "length")))
        return ys

    inputs = {**sizes.operands(), "prompts": (sizes.q[:1], prompts)}
    for stepped, whole in interpret(program, inputs, MESH, layout).results:
        assert_close(stepped, whole, terms=sizes.terms)


def test_memory_that_stays_the_same() -> None:
    """Cross-attention in a step: the query has no length, and the memory is what it was."""
    sizes = Sizes(memory_length=6)
    there = np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, there: mtf.Tensor) -> list[mtf.Tensor]:
        pattern = AttentionPattern(memory=Tokens(segments=there))
        steps = [dot_product_attention(one, k, v, pattern) for one in mtf.unstack(q, "length")]
        return [mtf.stack(steps, "length", axis=1), dot_product_attention(q, k, v, pattern)]

    inputs = {**sizes.operands(), "there": (sizes.k[:2], there)}
    for layout in ["", "batch:rows;heads:cols", "memory_length:rows"]:
        stepped, whole = interpret(program, inputs, MESH, layout).results
        assert_close(stepped, whole, terms=sizes.terms)


def test_a_prefix_is_behind_every_token_that_is_decoded() -> None:
    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> list[mtf.Tensor]:
        cache = KeyValueCache(k, v)
        position = mtf.constant(q.mesh, 5, [], tf.int32)
        masks = [AttentionMask(is_causal=True, sees_prefix=sees) for sees in (True, False)]
        one = mtf.gather(q, position, "length")
        patterns = [AttentionPattern(mask, Tokens(position), cache.tokens(position)) for mask in masks]
        return [dot_product_attention(one, k, v, pattern) for pattern in patterns]

    with_prefix, without = interpret(program, Sizes().operands(), "rows:1").results
    np.testing.assert_array_equal(with_prefix, without)


@pytest.mark.parametrize(
    ("window", "positions", "expected"),
    [(None, [-1, 1, 3, 4], [0, 2, 0, 3]), (3, [-1, 1, 3, 4], [3, 4, 0])],
    ids=["first positions", "last positions"],
)
@pytest.mark.parametrize("is_many", [True, False])
def test_places_in_the_cache(window: int | None, positions: list[int], expected: list[int], is_many: bool) -> None:
    """Negative positions are not written, nor those beyond the end; of two at a place in a window, the later stays."""
    config, tokens = AttentionConfig(num_heads=1, d_kv=1), mtf.Dimension("memory_length", 4)

    def program(position: mtf.Tensor, k: mtf.Tensor) -> list[mtf.Tensor]:
        cache = KeyValueCache.empty(k.mesh, mtf.Shape([]), 4, config, window=window)
        if is_many:
            return cache.write(position, k, k + 1.0).tensors
        for place, one in zip(mtf.unstack(position, tokens), mtf.unstack(k, tokens), strict=True):
            cache = cache.write(place, one, one + 1.0)
        return cache.tensors

    shape = mtf.Shape([tokens, *config.memory_heads, config.d_kv_dim])
    values = np.arange(1, 5, dtype=np.float32).reshape([4, 1, 1])
    inputs = {"position": ([tokens], np.array(positions, np.int32)), "k": (shape, values)}
    k, v = interpret(program, inputs, "rows:1").results
    assert k.ravel().tolist() == expected
    assert v.ravel().tolist() == [x + (x > 0) for x in expected]


def test_a_few_tokens_in_a_row_never_overwrite() -> None:
    """A window's cache takes them while it holds all positions: a query of the row may still need each of them."""
    config, few = AttentionConfig(num_heads=1, d_kv=1), mtf.Dimension("few", 2)

    def program(position: mtf.Tensor, k: mtf.Tensor) -> list[mtf.Tensor]:
        cache = KeyValueCache.empty(k.mesh, mtf.Shape([]), 4, config, window=3)
        return cache.write(position, k, k + 1.0).tensors

    def written(*positions: int) -> list[float]:
        keys = np.array([1, 2], np.float32).reshape([2, 1, 1])
        shape = mtf.Shape([few, *config.memory_heads, config.d_kv_dim])
        inputs = {"position": ([few], np.array(positions, np.int32)), "k": (shape, keys)}
        return interpret(program, inputs, "rows:1").results[0].ravel().tolist()

    assert written(1, 2) == [0, 1, 2]
    assert written(-1, 0) == [2, 0, 0]
    with pytest.raises(IndexRangeError, match=r"(?s)a position outside of 0 to 2.*takes one token of each sequence"):
        written(2, 3)


def test_a_step_moves_nothing_of_the_cache() -> None:
    """Split over batch, heads or memory_length: only sums over the memory cross cores, a row of results each."""
    sizes, config = VARIANTS["multi-head"]
    shape = [d for d in sizes.q if d.name != "length"]
    specs = dict.fromkeys("qkv", mtf.TensorSpec(shape))

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> mtf.Tensor:
        cache = KeyValueCache.empty(q.mesh, q.shape[:1], 1024, config)
        position = mtf.constant(q.mesh, 3, [], tf.int32)
        return Decoder(config, None).step(cache, position, [q, k, v], Decoder(config, None).bias(q.mesh))[1]

    for layout in ["batch:rows;heads:cols", "memory_length:rows+cols"]:
        step = mtf.function(program, mtf.SpmdMeshImpl(MESH, layout), inputs=specs)
        assert sum(c.bytes_sent for c in step.report().collectives) < 1024


def build(program: Any) -> None:
    graph = mtf.Graph()
    with graph:
        program(mtf.Mesh(graph))


def test_what_does_not_fit_the_cache() -> None:
    config, batch = AttentionConfig(num_heads=2, d_kv=4), mtf.Shape([("batch", 2)])
    one = batch + config.memory_heads + [config.d_kv_dim]

    def write(position: tf.DType, k: mtf.Shape, dtype: tf.DType = tf.float32) -> None:
        def program(mesh: mtf.Mesh) -> None:
            cache = KeyValueCache.empty(mesh, batch, 8, config)
            cache.write(mtf.zeros(mesh, batch, position), mtf.zeros(mesh, k, dtype), mtf.zeros(mesh, one))

        build(program)

    with pytest.raises(ShapeError, match=r"k \[batch:2 d_kv:4\] must have the dimensions \[batch:2 heads:2 d_kv:4\]"):
        write(tf.int32, one - [("heads", 2)])
    with pytest.raises(DtypeError, match=r"positions \[batch:2\] must be int32, not int64"):
        write(tf.int64, one)
    with pytest.raises(DtypeError, match=r"k is bfloat16, the cache float32; convert with mtf\.cast"):
        write(tf.int32, one, tf.bfloat16)
