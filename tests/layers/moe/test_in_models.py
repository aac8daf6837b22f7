"""Mixtures of experts in stacks and models: what they tell reaches the loss, the metrics and the training's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.moe import Capacity, MixtureOfExperts
from meshtf.layers.transformer import (
    CrossAttention,
    FeedForward,
    RmsNorm,
    SelfAttention,
    TokenEmbedding,
    TransformerStack,
)
from meshtf.models import EncoderDecoder, MaskedLM, TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

TOKENS = mtf.Shape([("batch", 4), ("length", 8)])
IDS = np.random.default_rng(0).integers(2, 50, TOKENS.to_integer_list).astype(np.int32)
SEEN = {
    f"mixture_of_experts/{name}"
    for name in ("balance", "dropped", "gate_entropy", "importance", "largest_load", "load")
}
ATTENTION = AttentionConfig(2, 8)
TERMS = (2 * (4 * 16 + 2 * 8 + 4 * 16 + 3 * 16 + 8 * FUNCTION_TERMS), 16 + 50 + 2 * FUNCTION_TERMS, TOKENS.size)
"""Two layers of attention, a feed-forward layer and experts, each behind a norm; then logits, their losses, a mean."""


def stack(*sublayers: Any, balance_loss: float = 0.1, unroll: bool = False) -> TransformerStack:
    experts = MixtureOfExperts(4, 16, capacity=Capacity(1.0), balance_loss=balance_loss)
    return TransformerStack([*sublayers, FeedForward(16), experts], 2, unroll=unroll)


def language_model(**settings: Any) -> TransformerLM:
    return TransformerLM(16, TokenEmbedding(VocabularyEmbedding(50)), stack(SelfAttention(ATTENTION), **settings))


def program(model: Any, *, is_training: bool) -> Any:
    def metrics(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        found: Mapping[str, Any] = model.metrics(features, is_training)
        return {name: mtf.reduce_sum(x * w) / mtf.reduce_sum(w) for name, (x, w) in found.items()}

    return metrics


def results(model: Any, mesh: str = "rows:1;cols:1", layout: str = "", *, is_training: bool = True) -> dict[str, Any]:
    inputs = dict.fromkeys(("inputs", "targets"), (TOKENS, IDS))
    inputs["targets_weights"] = (TOKENS, np.ones(IDS.shape, np.float32))
    return interpret(program(model, is_training=is_training), inputs, mesh, layout).results


@pytest.fixture(name="scanned", scope="module")
def _scanned() -> dict[str, Any]:
    """What the language model tells in training."""
    return results(language_model())


@pytest.mark.parametrize("unroll", [False, pytest.param(True, marks=pytest.mark.long)])
def test_auxiliary_losses_of_all_layers_are_in_the_training_loss_and_nowhere_else(
    unroll: bool, scanned: dict[str, Any]
) -> None:
    plain = results(language_model(balance_loss=0.0, unroll=unroll))
    trained = results(language_model(unroll=True)) if unroll else scanned
    assert set(trained) == {"loss", "accuracy", *SEEN}
    two_layers = 0.1 * 2 * trained["mixture_of_experts/balance"]
    assert two_layers > 0.2
    assert_close(trained["loss"], plain["loss"] + two_layers, terms=TERMS)
    evaluated = results(language_model(unroll=unroll), is_training=False)
    assert_close(
        evaluated["loss"],
        results(language_model(balance_loss=0.0, unroll=unroll), is_training=False)["loss"],
        terms=TERMS,
    )


def test_what_is_observed_is_the_same_as_a_scan_unrolled_and_under_layouts(scanned: dict[str, Any]) -> None:
    expected = scanned
    layouts = ["batch:rows;experts:rows;heads:cols;d_ff:cols", "batch:rows+cols;experts:rows+cols"]
    others = [results(language_model(unroll=True)), *(results(language_model(), "rows:2;cols:2", x) for x in layouts)]
    for other in others:
        assert other.keys() == expected.keys()
        for name, value in expected.items():
            assert_close(other[name], value, terms=TERMS, what=name)


def test_every_model_hands_on_what_its_layers_tell() -> None:
    embedding = TokenEmbedding(VocabularyEmbedding(50))
    masked = MaskedLM(16, embedding, stack(SelfAttention(ATTENTION)), RmsNorm())
    assert set(results(masked)) == {"loss", "accuracy", *SEEN}
    encoder, decoder = stack(SelfAttention(ATTENTION)), stack(SelfAttention(ATTENTION), CrossAttention(ATTENTION))
    found = results(EncoderDecoder(16, embedding, encoder, decoder))
    assert set(found) == {"loss", "accuracy", *(f"{side}/{name}" for side in ("encoder", "decoder") for name in SEEN)}


def test_sublayers_of_one_name_tell_under_names_of_their_own() -> None:
    experts = MixtureOfExperts(4, 16)
    both = TransformerStack([experts, experts], 1)
    found = results(TransformerLM(16, TokenEmbedding(VocabularyEmbedding(50)), both))
    second = {name.replace("experts/", "experts_1/") for name in SEEN}
    assert set(found) == {"loss", "accuracy", *SEEN, *second}


def test_a_gradient_reaches_the_router_through_the_balance_loss_alone() -> None:
    def routers(features: Mapping[str, mtf.Tensor], coefficient: float) -> mtf.Tensor:
        model = language_model(balance_loss=coefficient)
        values, weights = model.metrics(features, True)["loss"]
        router = next(v for v in values.graph.trainable_variables if v.full_name.endswith("router"))
        return mtf.gradients([mtf.reduce_sum(values * weights)], [router.value])[0]

    def both(targets: mtf.Tensor) -> list[mtf.Tensor]:
        return [routers({"targets": targets}, coefficient) for coefficient in (0.0, 0.5)]

    plain, balanced = interpret(both, {"targets": (TOKENS, IDS)}, "all:1").results
    assert np.abs(tf.convert_to_tensor(plain - balanced)).max() > 1e-3
