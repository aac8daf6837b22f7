"""Layers of several kinds stand in the fewest stacks that have them in order."""

from __future__ import annotations

import itertools

import pytest

from meshtf.checkpoint.conversion.decoders.layer_plan import LayerPlan, Segment

KINDS = {
    "s": {"self_attention": "@sliding/SelfAttention()", "feed_forward": "@FeedForward()"},
    "f": {"self_attention": "@SelfAttention()", "feed_forward": "@FeedForward()"},
    "m": {"self_attention": "@SelfAttention()", "mixture_of_experts": "@MixtureOfExperts()"},
}


@pytest.mark.parametrize(
    ("layers", "segments"),
    [
        ("fff", [("f", 3)]),
        ("f", [("f", 1)]),
        ("sfsf", [("sf", 2)]),
        ("sfss", [("sf", 1), ("s", 2)]),
        ("sfmf", [("sfmf", 1)]),
        ("sssssf" * 4 + "ss", [("sssssf", 4), ("ss", 1)]),  # Gemma 3, 1B
        ("f" * 3 + "m" * 58, [("fff", 1), ("m", 58)]),  # DeepSeek-V3
        ("fmmmm", [("f", 1), ("m", 4)]),
        ("sfsfsfmmmm", [("sf", 3), ("mmmm", 1)]),
    ],
)
def test_the_period_repeats_and_the_rest_stands_beside_it(layers: str, segments: list[tuple[str, int]]) -> None:
    plan = LayerPlan.of(layers, KINDS)
    assert list(plan.segments) == [Segment(tuple(kinds), repeats) for kinds, repeats in segments]


def test_every_order_of_layers_is_kept() -> None:
    for layers in itertools.product("sfm", repeat=5):
        plan = LayerPlan.of(layers, KINDS)
        assert [k for s in plan.segments for k in s.kinds * s.repeats] == list(layers)
        numbers = sorted(int(number) for number in plan.labels["self_attention"])
        assert numbers == list(range(5))
        scopes = [place for own in plan.places.values() for _, place in own]
        assert len(scopes) == len(set(scopes)) == 10


def test_scopes_and_gin_are_those_of_the_stacks() -> None:
    plan = LayerPlan.of("fmmsmms", KINDS, ["meshtf.layers.moe"])
    assert plan.labels["mixture_of_experts"] == ("1", "2", "4", "5")
    assert plan.labels["mixture_of_experts:here"] == (
        "stack_1/layer_000/mixture_of_experts",
        "stack_1/layer_000/mixture_of_experts_1",
        "stack_1/layer_001/mixture_of_experts",
        "stack_1/layer_001/mixture_of_experts_1",
    )
    assert plan.labels["self_attention:here"][:4] == (
        "stack_0/layer_000/self_attention",
        "stack_1/layer_000/self_attention",
        "stack_1/layer_000/self_attention_1",
        "stack_1/layer_000/self_attention_2",
    )
    assert plan.labels["feed_forward:layer"] == ("stack_0/layer_000", "stack_1/layer_000", "stack_1/layer_001")
    assert plan.gin("TransformerLM") == (
        "import meshtf.layers.moe\n"
        "TransformerLM.stack = @ChainedStacks()\n"
        "ChainedStacks.stacks = [@stack_0/TransformerStack(), @TransformerStack()]\n"
        "stack_0/TransformerStack.num_layers = 1\n"
        "stack_0/TransformerStack.sublayers = [@SelfAttention(), @FeedForward()]\n"
        "num_layers = 2\n"
        "TransformerStack.sublayers = [@SelfAttention(), @MixtureOfExperts(), @SelfAttention(), @MixtureOfExperts(), "
        "@sliding/SelfAttention(), @FeedForward()]"
    )
    assert LayerPlan.of("ff", KINDS).labels["self_attention:here"] == (
        "layer_000/self_attention",
        "layer_001/self_attention",
    )
