"""Experts from a few groups, and what else DeepSeek's and gpt-oss's experts have, against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers import ClampedLinear, ClampedSwish
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import Capacity, Gates, GroupLimitedRouter, MixtureOfExperts, TopNRouter
from meshtf.layers.transformer import Context, FeedForward
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest
from tests.layers.chosen_values import results_by_layout

EXPERTS, D_MODEL, D_FF, D_SHARED = 8, 6, 5, 4
SHAPE = mtf.Shape([("batch", 2), ("length", 3), ("d_model", D_MODEL)])
LAYOUTS = ["batch:rows;experts:cols", "d_ff:rows;d_model:cols"]
TERMS = (3 * D_MODEL, D_FF, 6 * FUNCTION_TERMS, 4 * EXPERTS)
SHARED = FeedForward(D_SHARED, ("swish", "linear"))
CASES = {
    "v2": MixtureOfExperts(
        EXPERTS,
        D_FF,
        GroupLimitedRouter(2, num_groups=4, num_chosen_groups=2, scale=3.0),
        capacity=None,
        activation=("swish", "linear"),
        shared=SHARED,
    ),
    "v3": MixtureOfExperts(
        EXPERTS,
        D_FF,
        GroupLimitedRouter(
            3,
            num_groups=4,
            num_chosen_groups=2,
            scores_of_group=2,
            is_normalized=True,
            scale=2.5,
            has_correction=True,
        ),
        Gates(scoring="sigmoid"),
        capacity=Capacity(8.0),
        activation=("swish", "linear"),
        shared=SHARED,
    ),
    "gpt-oss": MixtureOfExperts(
        EXPERTS,
        D_FF,
        TopNRouter(2),
        Gates(use_bias=True),
        capacity=None,
        activation=(ClampedSwish(limit=0.8), ClampedLinear(limit=0.5)),
        use_bias=True,
    ),
    "gpt-oss, places": MixtureOfExperts(
        EXPERTS,
        D_FF,
        TopNRouter(2),
        Gates(use_bias=True),
        capacity=Capacity(8.0),
        activation=(ClampedSwish(limit=0.8), ClampedLinear(limit=0.5)),
        use_bias=True,
    ),
}

Weights = dict[str, np.ndarray]


def weights_of(layer: MixtureOfExperts) -> Weights:
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "router": (D_MODEL, EXPERTS),
        "wi_0/kernel": (EXPERTS, D_MODEL, D_FF),
        "wi_1/kernel": (EXPERTS, D_MODEL, D_FF),
        "wo/kernel": (EXPERTS, D_FF, D_MODEL),
    }
    if layer.use_bias:
        shapes |= {"wi_0/bias": (EXPERTS, D_FF), "wi_1/bias": (EXPERTS, D_FF), "wo/bias": (EXPERTS, D_MODEL)}
        shapes["router_bias"] = (EXPERTS,)
    if layer.shared is not None:
        shapes |= {f"shared/wi_{n}/kernel": (D_MODEL, D_SHARED) for n in (0, 1)}
        shapes["shared/wo/kernel"] = (D_SHARED, D_MODEL)
    if isinstance(layer.router, GroupLimitedRouter) and layer.router.has_correction:
        shapes["router_correction"] = (EXPERTS,)
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def written_out(x: np.ndarray, layer: MixtureOfExperts, given: Weights) -> np.ndarray:
    """One token after the other, in float64."""
    w = {name: value.astype(np.float64) for name, value in given.items()}
    rows = [one(row, layer, w) for row in x.astype(np.float64).reshape(-1, D_MODEL)]
    return np.stack(rows).reshape(x.shape)


def one(x: np.ndarray, layer: MixtureOfExperts, w: Weights) -> np.ndarray:
    logits = x @ w["router"] + w.get("router_bias", 0.0)
    exponentials = np.exp(logits)
    is_sigmoid = layer.gates.scoring == "sigmoid"
    scores = exponentials / (1.0 + exponentials) if is_sigmoid else exponentials / exponentials.sum()
    y = np.zeros(D_MODEL)
    for expert, weight in chosen(scores, layer, w).items():
        up, gate = (x @ w[f"wi_{n}/kernel"][expert] for n in (1, 0))
        if layer.use_bias:
            up, gate = np.clip(up + w["wi_1/bias"][expert], -0.5, 0.5), np.minimum(gate + w["wi_0/bias"][expert], 0.8)
            inner = (up + 1.0) * gate / (1.0 + np.exp(-1.702 * gate))
        else:
            inner = up * swish(gate)
        y += weight * (inner @ w["wo/kernel"][expert] + (w["wo/bias"][expert] if layer.use_bias else 0.0))
    if layer.shared is None:
        return y
    return y + (swish(x @ w["shared/wi_0/kernel"]) * (x @ w["shared/wi_1/kernel"])) @ w["shared/wo/kernel"]


def chosen(scores: np.ndarray, layer: MixtureOfExperts, w: Weights) -> dict[int, float]:
    """The experts of one token, and their weights."""
    router = layer.router
    if not isinstance(router, GroupLimitedRouter):
        experts = np.argsort(-scores)[: router.num_choices]
        return {int(e): scores[e] / scores[experts].sum() for e in experts}
    candidates = scores + w.get("router_correction", 0.0)
    grouped = candidates.reshape(router.num_groups, -1)
    of_groups = np.sort(grouped)[:, -router.scores_of_group :].sum(1)
    best = np.argsort(-of_groups)[: router.num_chosen_groups]
    size = grouped.shape[1]
    allowed = [e for e in np.argsort(-candidates) if e // size in best][: router.num_choices]
    total = scores[allowed].sum() if router.is_normalized else 1.0
    return {int(e): router.scale * scores[e] / total for e in allowed}


def swish(x: np.ndarray) -> np.ndarray:
    return x / (1.0 + np.exp(-x))


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("v2", LAYOUTS[:1]),
        ("v3", LAYOUTS[1:]),
        ("gpt-oss", LAYOUTS[1:]),
        ("gpt-oss, places", LAYOUTS[:1]),
        *(pytest.param(name, LAYOUTS, marks=pytest.mark.long) for name in CASES),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_experts_are_a_loop_over_tokens(name: str, layouts: list[str]) -> None:
    layer, x = CASES[name], np.random.default_rng(1).normal(size=SHAPE.to_integer_list).astype(np.float32)
    weights = weights_of(layer)
    expected = written_out(x, layer, weights)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        position = mtf.constant(x.mesh, 2, dtype=tf.int32)
        tokens = mtf.gather(x, position, "length")
        context = Context(AttentionMask(is_causal=True), Tokens())
        return [layer(x, context), layer.step(tokens, context, position, [])[0]]

    size = largest(x, expected, *weights.values())
    for whole, step in results_by_layout(program, (SHAPE, x), weights, layouts):
        assert_close(whole, expected, terms=TERMS, magnitude=size)
        assert_close(step, expected[:, 2], terms=TERMS, magnitude=size)


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(ValueError, match="num_chosen_groups = 3 must not be above num_groups = 2"):
        GroupLimitedRouter(1, num_groups=2, num_chosen_groups=3)
    with pytest.raises(ValueError, match="GroupLimitedRouter: num_choices must be a positive integer, and is 0"):
        GroupLimitedRouter(0)
    with pytest.raises(
        ValueError, match="Gates: scoring must be one of softmax, sigmoid, and is 'sigmoidal'; did you mean"
    ):
        Gates(scoring="sigmoidal")

    def routed(router: GroupLimitedRouter) -> None:
        scores = (mtf.Shape([("group", 2), ("tokens", 4), ("_experts", EXPERTS)]), np.ones((2, 4, EXPERTS), np.float32))
        interpret(lambda x: [router(x, None, None, is_training=False).choices], {"x": scores}, "rows:1")

    with pytest.raises(GraphError, match="8 experts do not divide into num_groups = 3 groups"):
        routed(GroupLimitedRouter(1, num_groups=3))
    with pytest.raises(
        GraphError, match="num_choices = 3 experts cannot be taken from num_chosen_groups = 1 of 2 experts"
    ):
        routed(GroupLimitedRouter(3, num_groups=4))
