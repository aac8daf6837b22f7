"""The ways to attend, against attention written out, with every mask and kind of heads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from written_out import LAYOUTS, Sizes, attention, normal, segments, visible

import meshtf as mtf
from meshtf.layers import (
    AttentionConfig,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    RelativePositionBias,
    Tokens,
    dot_product_attention,
    lean_attention,
    local_attention,
    ring_attention,
)
from meshtf.testing import assert_close, interpret
from tests.house.sharpest import sharpest

MASKS = {
    "bidirectional": AttentionMask(),
    "causal": AttentionMask(is_causal=True),
    "prefix": AttentionMask(is_causal=True, sees_prefix=True),
    "window": AttentionMask(is_causal=True, window=3),
    "symmetric window": AttentionMask(window=2),
    "window with prefix": AttentionMask(is_causal=True, window=3, sees_prefix=True),
}
HEADS = {
    "multi-head": Sizes(),
    "multi-query": Sizes(is_shared=True),
    "grouped-query": Sizes(queries_per_head=2),
}


def lean(*arguments: Any, **options: Any) -> mtf.Tensor:
    return lean_attention(*arguments, **options, block_size=4)


def ring(*arguments: Any, **options: Any) -> mtf.Tensor:
    return ring_attention(*arguments, **options, num_blocks=4)


def tokens_of(sizes: Sizes) -> dict[str, np.ndarray]:
    own = segments(sizes.batch, sizes.length)
    index = np.broadcast_to(np.arange(sizes.length, dtype=np.int32), own.shape)
    is_prefix = (index % 4 < 3).astype(np.int32)
    return {"positions": index, "segments": own, "is_prefix": is_prefix}


def with_tokens(attend: Callable[..., mtf.Tensor], mask: AttentionMask, config: AttentionConfig | None = None) -> Any:
    """A program of q, k, v, with the tokens' segments and prefixes as inputs, and with `config` a relative bias."""

    def program(q: Any, k: Any, v: Any, own: Any, is_prefix: Any) -> Sequence[mtf.Tensor]:
        bias = None
        if config is not None:
            bias = RelativePositionBias.make(q.mesh, config, 8, 6, is_bidirectional=not mask.is_causal)
        pattern = AttentionPattern.within(Tokens.along(q, own, is_prefix), mask, bias)
        return [attend(q, k, v, pattern)]

    return program


def inputs_of(sizes: Sizes) -> dict[str, tuple[Any, np.ndarray]]:
    tokens, shape = tokens_of(sizes), sizes.q[:2]
    return {**sizes.operands(), "own": (shape, tokens["segments"]), "is_prefix": (shape, tokens["is_prefix"])}


def written_out(mask: AttentionMask, sizes: Sizes) -> Any:
    tokens = tokens_of(sizes)
    seen = visible(mask, tokens, tokens)
    assert not seen[:, -1].any(), "the last row is padding, and sees nothing"
    return lambda variables, q, k, v, **_: [attention(q, k, v, seen)]


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_masks_on_one_core(mask: AttentionMask, check_layers: Any) -> None:
    ways = [dot_product_attention, lean, ring] + ([local_attention] if mask.window else [])
    sizes = HEADS["multi-head"]
    formula = written_out(mask, sizes)

    def every_way(**inputs: mtf.Tensor) -> list[mtf.Tensor]:
        return [y for attend in ways for y in with_tokens(attend, mask)(**inputs)]

    check_layers(every_way, lambda *given, **inputs: formula(*given, **inputs) * len(ways), inputs_of(sizes), [])


@pytest.mark.parametrize("layouts", [LAYOUTS[1:3], pytest.param(LAYOUTS, marks=pytest.mark.long)], ids=len)
def test_layouts_of_the_ring(layouts: list[str], check_layers: Any) -> None:
    mask, sizes = MASKS["causal"], HEADS["grouped-query"]
    check_layers(with_tokens(ring, mask), written_out(mask, sizes), inputs_of(sizes), layouts)


WAYS = [dot_product_attention, lean, local_attention, ring]


@pytest.mark.parametrize(
    ("attend", "heads"),
    sharpest(
        itertools.product(WAYS, HEADS),
        [(dot_product_attention, "multi-query"), (lean, "grouped-query"), (local_attention, "grouped-query")],
    ),
)
def test_layouts(attend: Callable[..., mtf.Tensor], heads: str, check_layers: Any) -> None:
    mask, sizes = MASKS["window"], HEADS[heads]
    check_layers(with_tokens(attend, mask), written_out(mask, sizes), inputs_of(sizes), LAYOUTS)


FOR_BIAS = ["length:rows;heads:cols", "relative_position_buckets:rows;memory_length:cols"]


@pytest.mark.parametrize(
    ("attend", "layouts"),
    [
        (dot_product_attention, FOR_BIAS),
        (lean, FOR_BIAS[1:]),
        (local_attention, FOR_BIAS[:1]),
        (ring, FOR_BIAS[:1]),
        *(pytest.param(attend, FOR_BIAS, marks=pytest.mark.long) for attend in WAYS),
    ],
)
def test_relative_bias_and_its_gradient(
    attend: Callable[..., mtf.Tensor], layouts: list[str], check_layers: Any
) -> None:
    mask, sizes = MASKS["window with prefix"], HEADS["grouped-query"]
    config = AttentionConfig(num_heads=4, num_kv_heads=2, d_kv=4)
    tokens = tokens_of(sizes)
    seen = visible(mask, tokens, tokens)
    distance = np.arange(8)[:, None] - np.arange(8)[None]
    buckets = np.array([0, 1, 2, 3, 4, 6, 7, 7])[np.maximum(distance, 0)]

    def formula(variables: Any, q: Any, k: Any, v: Any, **_: Any) -> list[tf.Tensor]:
        bias = tf.gather(variables["relative_attention_bias"], buckets)
        return [attention(q, k, v, seen, tf.transpose(bias, [2, 3, 0, 1]))]

    check_layers(with_tokens(attend, mask, config), formula, inputs_of(sizes), layouts)


@pytest.mark.parametrize(
    ("attend", "extra"),
    sharpest(
        itertools.product([dot_product_attention, lean, ring], [0.5, None]),
        [(dot_product_attention, 0.5), (lean, None), (ring, None)],
    ),
)
def test_extra_logit(attend: Callable[..., mtf.Tensor], extra: float | None, check_layers: Any) -> None:
    """A number, or one learned for each head, which has a gradient."""
    sizes, mask = HEADS["multi-head"], MASKS["causal"]
    tokens = tokens_of(sizes)
    seen = visible(mask, tokens, tokens)

    def layer(q: Any, k: Any, v: Any, own: Any, is_prefix: Any, sinks: Any = None) -> Sequence[mtf.Tensor]:
        options = AttentionOptions(extra_logit=extra if sinks is None else sinks)
        return [attend(q, k, v, AttentionPattern.within(Tokens.along(q, own), mask), options)]

    def formula(variables: Any, q: Any, k: Any, v: Any, sinks: Any = None, **_: Any) -> list[tf.Tensor]:
        return [attention(q, k, v, seen, extra_logit=extra if sinks is None else sinks[:, None, None])]

    inputs = inputs_of(sizes)
    if extra is None:
        inputs["sinks"] = (sizes.q[2:3], normal([2], 5))
    check_layers(layer, formula, inputs, ["heads:rows;memory_length:cols"])


@pytest.mark.parametrize("attend", [dot_product_attention, lean])
def test_memory_of_another_length_that_does_not_divide(attend: Callable[..., mtf.Tensor], check_layers: Any) -> None:
    sizes = Sizes(length=4, memory_length=7)
    there = np.array([[1] * 5 + [0, 0], [1] * 7], np.int32)
    seen = np.broadcast_to(there[:, None] == 1, [2, 4, 7])

    def layer(q: Any, k: Any, v: Any, there: Any) -> Sequence[mtf.Tensor]:
        memory = Tokens(segments=there)
        return [attend(q, k, v, AttentionPattern(memory=memory)), attend(q, k, v, AttentionPattern())]

    def formula(variables: Any, q: Any, k: Any, v: Any, **_: Any) -> list[tf.Tensor]:
        return [attention(q, k, v, seen), attention(q, k, v, np.ones_like(seen))]

    inputs = {**sizes.operands(), "there": (sizes.k[:2], there)}
    check_layers(layer, formula, inputs, ["batch:rows;length:cols", "heads:rows;d_kv:cols"])


@pytest.mark.parametrize(
    ("length", "window"),
    sharpest([(8, 1), (8, 8), (9, 2), (11, 3), (14, 4), (16, 5), (24, 7), (5, 9)], [(8, 8), (9, 2), (14, 4), (5, 9)]),
)
@pytest.mark.parametrize("is_causal", [True, False])
def test_windows_and_lengths_that_do_and_do_not_divide(length: int, window: int, is_causal: bool) -> None:
    sizes, mask = Sizes(batch=1, length=length, memory_length=length), AttentionMask(is_causal, window)

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens.along(q), mask)
        ways = [attend(q, k, v, pattern) for attend in (local_attention, dot_product_attention)]
        return ways + [g for y in ways for g in mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    layouts = ["", "length:rows"] if length % 2 == 0 else [""]
    for layout in layouts:
        local, plain, *grads = interpret(program, sizes.operands(), "rows:2", layout).results
        for found, wanted in zip([local, *grads[:3]], [plain, *grads[3:]], strict=True):
            assert_close(found, wanted, terms=sizes.gradient_terms)


def test_grouped_queries_are_repeated_heads() -> None:
    sizes = HEADS["grouped-query"]

    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens.along(q), AttentionMask(is_causal=True))
        grouped = dot_product_attention(q, k, v, pattern)
        wide = mtf.Shape([d for d in sizes.q if d.name != "length"]) + [sizes.k[1]]
        repeated = [_one_heads_dimension(mtf.broadcast(x, wide)) for x in (k, v)]
        return [_one_heads_dimension(grouped), dot_product_attention(_one_heads_dimension(q), *repeated, pattern)]

    grouped, repeated = interpret(program, sizes.operands(), "rows:2", "heads:rows").results
    assert grouped.shape == (2, 8, 4, 4)
    assert_close(grouped, repeated, terms=sizes.terms)


def _one_heads_dimension(x: mtf.Tensor) -> mtf.Tensor:
    heads = [x.shape.get_dim_by_name(name) for name in ("heads", "queries_per_head")]
    return mtf.replace_dimensions(x, heads, mtf.Dimension("heads", 4))


@pytest.mark.parametrize(
    ("attend", "dtype"),
    sharpest(
        itertools.product([dot_product_attention, lean, local_attention, ring], [tf.bfloat16, tf.float16]),
        [
            (dot_product_attention, tf.float16),
            (lean, tf.bfloat16),
            (local_attention, tf.float16),
            (ring, tf.bfloat16),
        ],
    ),
)
def test_narrow_types_have_float32_logits(attend: Callable[..., mtf.Tensor], dtype: tf.DType) -> None:
    """Logits of hundreds, which the narrow types hold to 1 or 2, and a row that sees nothing."""

    def program(q: Any, k: Any, v: Any, own: Any) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens.along(q, own), AttentionMask(is_causal=True, window=5))
        narrow = attend(*(mtf.cast(x, dtype) for x in (q, k, v)), pattern)
        wide = attend(*(mtf.cast(mtf.cast(x, dtype), tf.float32) for x in (q, k, v)), pattern)
        return [mtf.cast(narrow, tf.float32), wide, mtf.gradients(mtf.reduce_sum(mtf.to_float(narrow)), q)[0]]

    sizes = Sizes()
    inputs = {name: (shape, x * (1 if name == "v" else 10)) for name, (shape, x) in sizes.operands().items()}
    inputs["own"] = (sizes.q[:2], tokens_of(sizes)["segments"])
    narrow, wide, gradient = interpret(program, inputs, "rows:2", "batch:rows").results
    assert_close(narrow, wide, terms=2, dtype=dtype)
    assert not narrow[:, -1].any()
    assert np.isfinite(gradient).all()


def test_narrow_logits_if_asked_for() -> None:
    def program(q: Any, k: Any, v: Any) -> list[mtf.Tensor]:
        narrow = [mtf.to_bfloat16(x) for x in (q, k, v)]
        ways = [AttentionOptions(float32_logits=wide) for wide in (True, False)]
        pattern = AttentionPattern.within(Tokens.along(q), AttentionMask(is_causal=True))
        return [mtf.to_float(dot_product_attention(*narrow, pattern, options)) for options in ways]

    inputs = {name: (shape, x * 5) for name, (shape, x) in Sizes().operands().items()}
    wide, narrow = interpret(program, inputs, "rows:1").results
    assert 0.001 < np.abs(wide - narrow).max() < 0.5
