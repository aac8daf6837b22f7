"""Attention by latents against keys and values that are written out, whole and token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, LatentConfig, Tokens
from meshtf.layers.attention.caches.latent_cache import LatentCache
from meshtf.layers.transformer import Context, LatentAttention, RmsNorm
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest
from tests.layers.chosen_values import results_by_layout

BATCH, LENGTH, HEADS, D_MODEL = 2, 6, 2, 8
SHAPE = mtf.Shape([("batch", BATCH), ("length", LENGTH), ("d_model", D_MODEL)])
LAYOUTS = [
    "",
    "batch:rows;heads:cols",
    "latent:rows;d_kv:cols",
    "length:rows;query_latent:cols",
    "memory_length:rows;batch:cols",
]
SIZES = {"d_kv": 4, "d_rotated": 2, "latent_size": 4, "norm": RmsNorm()}
CONFIGS = {
    "narrow values": LatentConfig(HEADS, d_value=3, query_latent_size=6, use_bias=True, **SIZES),
    "wide values, no latent of queries": LatentConfig(HEADS, d_value=9, query_scale=0.7, **SIZES),
}
TERMS = (3 * (D_MODEL + FUNCTION_TERMS), 16 * (6 + 8), 3 * FUNCTION_TERMS, LENGTH, HEADS * 9)
"""Projections and norms; logits, that may be 16; exponentials; means of values; the sum over heads."""

Weights = dict[str, np.ndarray]


def weights_of(config: LatentConfig) -> Weights:
    """Random weights, for the variables by name."""
    generator = np.random.default_rng(0)
    inner = config.query_latent_size or D_MODEL
    shapes = {
        "q": (inner, HEADS, config.d_kv),
        "q_rotated": (inner, HEADS, config.d_rotated),
        "latent": (D_MODEL, config.latent_size),
        "k_rotated": (D_MODEL, config.d_rotated),
        "keys/norm/scale": (config.latent_size,),
        "k": (config.latent_size, HEADS, config.d_kv),
        "v": (config.latent_size, HEADS, config.d_value),
        "o": (HEADS, config.d_value, D_MODEL),
    }
    if config.query_latent_size is not None:
        shapes |= {"q_latent": (D_MODEL, inner), "q_latent_bias": (inner,), "queries/norm/scale": (inner,)}
        shapes |= {"latent_bias": (config.latent_size,), "k_rotated_bias": (config.d_rotated,), "o_bias": (D_MODEL,)}
    return {name: generator.normal(scale=0.5, size=shape).astype(np.float32) for name, shape in shapes.items()}


def written_out(x: np.ndarray, config: LatentConfig, given: Weights) -> np.ndarray:
    """Causal attention in float64, one head after the other."""
    w = {name: value.astype(np.float64) for name, value in given.items()}
    y = x.astype(np.float64)
    inner = y
    if config.query_latent_size is not None:
        inner = normed(y @ w["q_latent"] + w["q_latent_bias"]) * w["queries/norm/scale"]
    latent = normed(y @ w["latent"] + w.get("latent_bias", 0.0)) * w["keys/norm/scale"]
    k_rotated = turned(y @ w["k_rotated"] + w.get("k_rotated_bias", 0.0))
    scale = (config.d_kv + config.d_rotated) ** -0.5 if config.query_scale is None else config.query_scale
    out = np.zeros_like(y)
    for head in range(HEADS):
        own = np.concatenate([inner @ w["q"][:, head], turned(inner @ w["q_rotated"][:, head])], -1)
        keys = np.concatenate([latent @ w["k"][:, head], k_rotated], -1)
        logits = scale * own @ keys.swapaxes(-1, -2)
        logits = np.where(np.tri(LENGTH, dtype=bool), logits, -np.inf)
        exponentials = np.exp(logits - logits.max(-1, keepdims=True))
        means = exponentials / exponentials.sum(-1, keepdims=True) @ (latent @ w["v"][:, head])
        out += means @ w["o"][head]
    return out + w.get("o_bias", 0.0)


def normed(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)


def turned(x: np.ndarray) -> np.ndarray:
    """A pair of elements, turned by as many radians as its position."""
    angles = np.arange(LENGTH)
    first, second = x[..., 0], x[..., 1]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([first * cos - second * sin, second * cos + first * sin], -1)


def context(positions: mtf.Tensor) -> Context:
    return Context(AttentionMask(is_causal=True), Tokens(positions), positions)


def whole(x: mtf.Tensor, config: LatentConfig, algorithm: str) -> mtf.Tensor:
    layer = LatentAttention(config, algorithm=algorithm, block_size=2)
    return layer(x, context(mtf.range(x.mesh, ("length", LENGTH))))


def one_by_one(x: mtf.Tensor, config: LatentConfig) -> mtf.Tensor:
    """After the first three tokens, which are read at once."""
    layer, read = LatentAttention(config), 3
    before = mtf.slice(x, 0, read, "length")
    first = context(mtf.range(x.mesh, ("length", read)))
    from_start, state = layer.fill(before, Context(first.mask, first.tokens, first.positions, max_length=LENGTH))
    assert sum(part.shape.size for part in state) == BATCH * LENGTH * (config.latent_size + config.d_rotated)
    found = []
    for number in range(read, LENGTH):
        position = mtf.constant(x.mesh, number, dtype=tf.int32)
        y, state = layer.step(mtf.gather(x, position, "length"), context(position), position, state)
        found.append(y)
    return mtf.concat([from_start, mtf.stack(found, "length", 1)], "length")


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        *zip(CONFIGS, (["", *LAYOUTS[2:4]], LAYOUTS[1::3]), strict=True),
        *(pytest.param(name, LAYOUTS, marks=pytest.mark.long) for name in CONFIGS),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_latents_are_keys_and_values_of_all_heads(name: str, layouts: list[str]) -> None:
    config, x = CONFIGS[name], np.random.default_rng(1).normal(size=SHAPE.to_integer_list).astype(np.float32)
    weights = weights_of(config)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [whole(x, config, "plain"), whole(x, config, "lean"), one_by_one(x, config)]

    expected = written_out(x, config, weights)
    for results in results_by_layout(program, (SHAPE, x), weights, layouts):
        for result in results:
            assert_close(result, expected, terms=TERMS, magnitude=largest(x, expected, *weights.values()))


def test_a_cache_holds_one_latent_of_each_token() -> None:
    config = CONFIGS["narrow values"]

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        cache = LatentCache.empty(x.mesh, SHAPE[:1], LENGTH, config, tf.float32)
        here = mtf.constant(x.mesh, 2, dtype=tf.int32)
        rows = SHAPE[:1]
        written = cache.write(
            here, mtf.ones(x.mesh, rows + [config.latent]), mtf.ones(x.mesh, rows + [config.part(config.d_rotated)])
        )
        segments = written.tokens(here).segments
        assert segments is not None
        return [*written.tensors, segments]

    latent, rotated, segments = interpret(
        program, {"x": (SHAPE, np.zeros(SHAPE.to_integer_list, np.float32))}, "rows:1"
    ).results
    assert (latent.shape, rotated.shape) == ((BATCH, LENGTH, 4), (BATCH, LENGTH, 2))
    np.testing.assert_array_equal(latent[:, :, 0], np.eye(LENGTH)[[2, 2]])
    np.testing.assert_array_equal(rotated[:, :, 1], np.eye(LENGTH)[[2, 2]])
    np.testing.assert_array_equal(segments, [1, 1, 1, 0, 0, 0])
    assert math.prod(latent.shape) + math.prod(rotated.shape) == BATCH * LENGTH * 6


def test_wrong_settings_are_told() -> None:
    with pytest.raises(ValueError, match="LatentConfig: latent_size must be a positive integer, and is 0"):
        LatentConfig(HEADS, 4, 2, 4, 0, RmsNorm())
    with pytest.raises(
        ValueError, match="LatentAttention: algorithm must be one of auto, plain, lean, fused, and is 'leann'; did you"
    ):
        LatentAttention(CONFIGS["narrow values"], algorithm="leann")
