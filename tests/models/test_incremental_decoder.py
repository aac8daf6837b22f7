"""Decoding token by token against the whole forward pass, from nothing and after prompts of different lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import (
    AttentionConfig,
    AttentionOptions,
    DynamicRotaryScaling,
    LatentConfig,
    LongRopeRotaryScaling,
    QueryKeyNorm,
    RotaryScaling,
    VocabularyEmbedding,
    YarnRotaryScaling,
)
from meshtf.layers.transformer import (
    ChainedStacks,
    CrossAttention,
    DistanceBias,
    FeedForward,
    LatentAttention,
    LearnedPositions,
    PositionEmbedding,
    RelativeBias,
    Residual,
    RmsNorm,
    Rotary,
    SelfAttention,
    SinusoidalPositions,
    StackBias,
    Sublayer,
    TokenEmbedding,
    TransformerStack,
)
from meshtf.models import EncoderDecoder, IncrementalDecoder, TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.models.transformers import interpreted

BATCH, LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 6)
TOKENS = mtf.Shape([BATCH, LENGTH])
PROMPT_LENGTHS = np.array([0, 1, 3, 5], np.int32)
VOCAB_SIZE = 20
ROWS = {
    "targets": np.random.default_rng(0).integers(2, VOCAB_SIZE, size=(4, 6)).astype(np.int32),
    "inputs": np.array([[5, 6, 7, 0], [8, 9, 0, 0], [3, 4, 5, 6], [7, 0, 0, 0]], np.int32),
}
MULTI_HEAD = AttentionConfig(num_heads=4, d_kv=4, use_bias=True)
MULTI_QUERY = AttentionConfig(num_heads=4, num_kv_heads=1, d_kv=4)
GROUPED = AttentionConfig(num_heads=4, num_kv_heads=2, d_kv=4)
NORMED = AttentionConfig(num_heads=4, num_kv_heads=2, d_kv=4, query_key_norm=QueryKeyNorm(RmsNorm(), over_heads=True))

Features = Mapping[str, mtf.Tensor]
TERMS = 4 * (3 * 8 + 3 * (2 * 8 + 4 + LENGTH.size) + 12 + 8 * FUNCTION_TERMS) + 8
"""At most four layers: norms, three attentions and a feed-forward layer each; then the logits."""


def embedding(positions: PositionEmbedding | None = None) -> TokenEmbedding:
    return TokenEmbedding(VocabularyEmbedding(VOCAB_SIZE, multiple=8), positions)


def stack(*sublayers: Sublayer, bias: StackBias | None = None, unroll: bool = False) -> TransformerStack:
    return TransformerStack([*sublayers, FeedForward(12, dropout_rate=0.5)], 2, bias=bias, unroll=unroll)


def language_model(
    attention: SelfAttention | LatentAttention,
    positions: PositionEmbedding | None = None,
    bias: StackBias | None = None,
    sees_prefix: bool = False,
    start_id: int = 0,
    residual: Residual | None = None,
) -> Callable[[bool], TransformerLM]:
    def model(unroll: bool) -> TransformerLM:
        layers = dataclasses.replace(stack(attention, bias=bias, unroll=unroll), residual=residual or Residual())
        return TransformerLM(8, embedding(positions), layers, sees_prefix=sees_prefix, start_id=start_id)

    return model


def encoder_decoder(
    config: AttentionConfig, inputs: TokenEmbedding | None = None, algorithm: str = "auto"
) -> Callable[[bool], EncoderDecoder]:
    """With an embedding of the inputs alone, or one of both sides."""
    own = SelfAttention(config, algorithm=algorithm, block_size=2)
    cross = CrossAttention(config, algorithm=algorithm, block_size=2)

    def model(unroll: bool) -> EncoderDecoder:
        bias = RelativeBias(config, 8, 6)
        encoder = stack(own, bias=bias, unroll=unroll)
        decoder = stack(own, cross, bias=bias, unroll=unroll)
        if inputs is None:
            return EncoderDecoder(8, embedding(), encoder, decoder)
        return EncoderDecoder(8, inputs, encoder, decoder, targets_embedding=embedding())

    return model


VARIANTS = {
    "multi-head, rotary": language_model(SelfAttention(MULTI_HEAD, rotary=Rotary())),
    "multi-query, learned positions": language_model(
        SelfAttention(MULTI_QUERY), LearnedPositions(LENGTH.size, 1.0, offset=2)
    ),
    "grouped, relative bias": language_model(SelfAttention(GROUPED), bias=RelativeBias(GROUPED, 8, 6)),
    "relative bias of each layer": language_model(SelfAttention(MULTI_HEAD, bias=RelativeBias(MULTI_HEAD, 8, 6))),
    "window, sinusoidal positions": language_model(
        SelfAttention(GROUPED, window=3), SinusoidalPositions(is_interleaved=False)
    ),
    "local, rotary, relative bias": language_model(
        SelfAttention(MULTI_HEAD, rotary=Rotary(), window=2, algorithm="local"), bias=RelativeBias(MULTI_HEAD, 8, 6)
    ),
    "lean, window": language_model(SelfAttention(MULTI_QUERY, window=4, algorithm="lean", block_size=2)),
    "a window as long as the sequence": language_model(SelfAttention(MULTI_QUERY, window=LENGTH.size)),
    "a start id, side by side, ALiBi": language_model(
        SelfAttention(GROUPED), bias=DistanceBias(GROUPED), start_id=3, residual=Residual(is_parallel=True)
    ),
    "latents, neighbours turned": language_model(
        LatentAttention(LatentConfig(2, 4, 2, 6, 5, RmsNorm(), 3), Rotary(is_interleaved=True))
    ),
    "sinks, window": language_model(SelfAttention(GROUPED, rotary=Rotary(), window=3, has_sinks=True)),
    "one norm, neighbours turned, caps": language_model(
        SelfAttention(MULTI_HEAD, AttentionOptions(logit_cap=2.0), Rotary(fraction=0.5, is_interleaved=True)),
        residual=Residual(is_parallel=True, shares_norm=True),
    ),
    "chained stacks, yarn, norms of queries": lambda unroll: TransformerLM(
        8,
        embedding(),
        ChainedStacks(
            [
                dataclasses.replace(stack(SelfAttention(MULTI_HEAD, window=2), unroll=unroll), num_layers=1),
                stack(SelfAttention(NORMED, rotary=Rotary(scaling=YarnRotaryScaling(2.0, 4))), unroll=unroll),
                dataclasses.replace(stack(SelfAttention(MULTI_QUERY, rotary=Rotary()), unroll=unroll), num_layers=1),
            ]
        ),
    ),
    "encoder and decoder": encoder_decoder(GROUPED),
    "lean, inputs of another vocabulary": encoder_decoder(
        GROUPED, TokenEmbedding(VocabularyEmbedding(10, multiple=2, name="inputs_embedding")), "lean"
    ),
}


def stepped(
    decoder: IncrementalDecoder, targets: mtf.Tensor, lengths: mtf.Tensor, state: list[mtf.Tensor]
) -> mtf.Tensor:
    """The logits of each step [batch, length, vocab]; the state has the first `lengths` positions already."""

    def token(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        before, position = parts
        writes_at = mtf.where(mtf.greater_equal(position, lengths), position, -1)
        logits, after = decoder.step(before, position, writes_at, carried)
        return after, [logits]

    sliced = [mtf.shift(targets, 1, LENGTH, wrap=False), mtf.range(targets.mesh, LENGTH)]
    _, (logits,) = mtf.scan(token, state, sliced, LENGTH)
    return mtf.transpose(logits, [BATCH, LENGTH, decoder.vocab])


def program(model: Any, dtype: tf.DType = tf.float32) -> Callable[..., list[mtf.Tensor]]:
    """Logits of the whole pass, token by token from nothing, and token by token after prompts."""

    def logits(targets: mtf.Tensor, prompt_lengths: mtf.Tensor, **inputs: mtf.Tensor) -> list[mtf.Tensor]:
        is_prompt = mtf.less(mtf.range(targets.mesh, LENGTH), prompt_lengths)
        prefix = mtf.transpose(mtf.cast(is_prompt, tf.int32), TOKENS)
        whole = model.logits({"targets": targets, "targets_prefix": prefix, **inputs}, False)
        decoder = model.incremental_decoder(inputs)
        nothing = decoder.start(targets.mesh, TOKENS[:1], LENGTH.size, dtype)
        prompts = mtf.where(is_prompt, targets, 1, output_shape=TOKENS)
        started = stepped(decoder, targets, mtf.zeros_like(prompt_lengths), nothing)
        read = mtf.slice(prompts, 0, PROMPT_LENGTHS.max().item(), LENGTH)
        filled = decoder.fill(read, prompt_lengths, max_length=LENGTH.size)
        return [whole, started, stepped(decoder, targets, prompt_lengths, filled)]

    return logits


def in_parts(model: Any, size: int) -> Callable[..., list[mtf.Tensor]]:
    """Logits of the whole pass, and of steps of a few tokens of each row, from the end of its own prompt on."""
    few = mtf.Dimension("few", size)

    def logits(targets: mtf.Tensor, prompt_lengths: mtf.Tensor, **inputs: mtf.Tensor) -> list[mtf.Tensor]:
        whole = model.logits({"targets": targets, **inputs}, False)
        decoder = model.incremental_decoder(inputs)
        is_prompt = mtf.less(mtf.range(targets.mesh, LENGTH), prompt_lengths)
        state = decoder.fill(mtf.where(is_prompt, targets, 1, output_shape=TOKENS), prompt_lengths)
        found = mtf.zeros(targets.mesh, [*TOKENS, decoder.vocab])
        for first in range(0, LENGTH.size, size):
            places = prompt_lengths + first + mtf.range(targets.mesh, few)
            is_inside = mtf.less(places, LENGTH.size)
            at, writes = mtf.minimum(places, LENGTH.size - 1), mtf.where(is_inside, places, -1)
            new, state = decoder.step(mtf.gather(targets, at - 1, LENGTH), at, writes, state)
            found = mtf.scatter_update(found, writes, new, LENGTH)
        return [whole, found]

    return logits


def compared(model: Any, mesh_shape: str, layout: str, dtype: tf.DType = tf.float32) -> list[np.ndarray]:
    arrays = {"targets": (TOKENS, ROWS["targets"]), "prompt_lengths": (TOKENS[:1], PROMPT_LENGTHS)}
    if isinstance(model, EncoderDecoder):
        arrays["inputs"] = (mtf.Shape([BATCH, ("length", 4)]), ROWS["inputs"])
    return [x[..., :VOCAB_SIZE] for x in interpreted(program(model, dtype), arrays, mesh_shape, layout, dtype).results]


SPLIT_OTHERWISE = {
    "multi-query, learned positions",
    "grouped, relative bias",
    "window, sinusoidal positions",
    "local, rotary, relative bias",
    "lean, inputs of another vocabulary",
}
"""Variants that the short run has under another layout."""
LIKE_OTHERS = {
    "multi-head, rotary",
    "encoder and decoder",
    "latents, neighbours turned",
    "relative bias of each layer",
    "a window as long as the sequence",
    "lean, window",
    "sinks, window",
}
"""Variants of which the short run has the parts in others. It decodes latents a few tokens at a time."""


def runs(variant: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if variant in SPLIT_OTHERWISE | LIKE_OTHERS else []


@pytest.mark.parametrize(
    ("variant", "unroll", "mesh_shape", "layout"),
    [
        *(pytest.param(variant, False, "rows:2", "batch:rows", marks=runs(variant)) for variant in VARIANTS),
        pytest.param("multi-head, rotary", True, "rows:2", "heads:rows", marks=pytest.mark.long),
        pytest.param("encoder and decoder", True, "rows:2", "heads:rows;d_ff:rows", marks=pytest.mark.long),
        pytest.param("window, sinusoidal positions", True, "rows:1", "", marks=pytest.mark.long),
        ("lean, inputs of another vocabulary", False, "rows:2", "memory_length:rows;vocab:rows;d_ff:rows"),
        pytest.param(
            "encoder and decoder", False, "rows:2", "memory_length:rows;vocab:rows;d_ff:rows", marks=pytest.mark.long
        ),
        pytest.param(
            "grouped, relative bias",
            False,
            "rows:2;cols:2",
            "batch:rows;heads:cols;d_ff:cols;vocab:cols",
            marks=pytest.mark.long,
        ),
        ("grouped, relative bias", True, "rows:2;cols:2", "heads:rows;memory_length:cols;vocab:cols"),
        pytest.param(
            "sinks, window", False, "rows:2;cols:3", "queries_per_head:rows;memory_length:cols", marks=pytest.mark.long
        ),
        pytest.param(
            "window, sinusoidal positions", False, "rows:2", "d_kv:rows;d_ff:rows;vocab:rows", marks=pytest.mark.long
        ),
        ("local, rotary, relative bias", False, "rows:2", "layers:rows;memory_length:rows"),
        pytest.param("multi-query, learned positions", False, "rows:2", "length:rows", marks=pytest.mark.long),
    ],
)
def test_token_by_token(variant: str, unroll: bool, mesh_shape: str, layout: str) -> None:
    whole, started, filled = compared(VARIANTS[variant](unroll), mesh_shape, layout)
    assert np.ptp(whole) > 0.1
    assert_close(started, whole, terms=TERMS)
    assert_close(filled, whole, terms=TERMS)


@pytest.mark.parametrize(
    ("variant", "layout"),
    [
        ("sinks, window", "memory_length:rows"),
        ("latents, neighbours turned", "batch:rows"),
        pytest.param("window, sinusoidal positions", "memory_length:rows", marks=pytest.mark.long),
        *(pytest.param(name, "batch:rows", marks=pytest.mark.long) for name in VARIANTS if "latents" not in name),
    ],
)
def test_a_few_tokens_at_a_time(variant: str, layout: str) -> None:
    """Each row at positions of its own, and beyond its end, where nothing is written."""
    model = VARIANTS[variant](False)
    arrays = {"targets": (TOKENS, ROWS["targets"]), "prompt_lengths": (TOKENS[:1], PROMPT_LENGTHS)}
    if isinstance(model, EncoderDecoder):
        arrays["inputs"] = (mtf.Shape([BATCH, ("length", 4)]), ROWS["inputs"])
    results = interpreted(in_parts(model, 4), arrays, "rows:2", layout, tf.float32).results
    whole, found = (x[..., :VOCAB_SIZE] for x in results)
    is_read = np.arange(LENGTH.size) >= PROMPT_LENGTHS[:, None]
    assert_close(found[is_read], whole[is_read], terms=TERMS)


@pytest.mark.parametrize("unroll", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_prompt_whose_tokens_all_see_each_other(unroll: bool) -> None:
    """What follows the prompt is as in the whole pass; from nothing it would not be."""
    attention, bias = SelfAttention(MULTI_HEAD), RelativeBias(MULTI_HEAD, 8, 6)
    model = language_model(attention, bias=bias, sees_prefix=True)(unroll)
    whole, started, filled = compared(model, "rows:2", "batch:rows")
    follows = np.arange(LENGTH.size) >= PROMPT_LENGTHS[:, None]
    assert_close(filled[follows], whole[follows], terms=TERMS)
    assert np.abs(started[3, 5] - whole[3, 5]).max() > 1e-3


@pytest.mark.parametrize(
    ("scaling", "layout"),
    [
        (LongRopeRotaryScaling([1.0] * 2, [8.0] * 2, 5), "batch:rows"),
        (DynamicRotaryScaling(8.0, 2), "heads:rows"),
    ],
)
def test_keys_are_rotated_by_the_length_of_their_own_prompt(scaling: RotaryScaling, layout: str) -> None:
    """Whatever the length of the longest prompt beside it, the next token is that of a pass over this prompt alone."""
    model = language_model(SelfAttention(MULTI_HEAD, rotary=Rotary(scaling=scaling)))(False)

    def logits(targets: mtf.Tensor, prompt_lengths: mtf.Tensor) -> list[mtf.Tensor]:
        decoder = model.incremental_decoder({})
        state = decoder.fill(targets, prompt_lengths)
        found, _ = decoder.step(mtf.gather(targets, prompt_lengths - 1, LENGTH), prompt_lengths, prompt_lengths, state)
        return [found, *(model.logits({"targets": targets["length", : n + 1]}, False) for n in PROMPT_LENGTHS)]

    arrays = {"targets": (TOKENS, ROWS["targets"]), "prompt_lengths": (TOKENS[:1], PROMPT_LENGTHS)}
    found, *alone = interpreted(logits, arrays, "rows:2", layout).results
    expected = np.stack([whole[row, n] for row, (whole, n) in enumerate(zip(alone, PROMPT_LENGTHS, strict=True))])
    assert_close(found[:, :VOCAB_SIZE], expected[:, :VOCAB_SIZE], terms=TERMS)


@pytest.mark.plain_cpu
def test_decoding_in_bfloat16() -> None:
    whole, started, filled = compared(VARIANTS["grouped, relative bias"](False), "rows:1", "", tf.bfloat16)
    for found in (started, filled):
        assert_close(found.astype(np.float32), whole.astype(np.float32), terms=10, dtype=tf.bfloat16)


def test_a_decoder_of_learned_positions_is_as_long_as_they_are() -> None:
    model = VARIANTS["multi-query, learned positions"](False)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    message = "sequences of 7 tokens are longer than the model's 6 positions"
    with graph:
        decoder = model.incremental_decoder({})
        with pytest.raises(ShapeError, match=message):
            decoder.start(mesh, TOKENS[:1], 7, tf.float32)
        prompts, lengths = (mtf.zeros(mesh, shape, tf.int32) for shape in ([BATCH, ("length", 7)], [BATCH]))
        with pytest.raises(ShapeError, match=message):
            decoder.fill(prompts, lengths)


def test_only_what_a_window_reaches_is_kept() -> None:
    model = language_model(SelfAttention(MULTI_QUERY, window=3))(False)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        k, v = model.incremental_decoder({}).start(mesh, TOKENS[:1], 100, tf.float32)
    assert str(k.shape) == str(v.shape) == "layers:2 batch:4 memory_length:3 d_kv:4"
