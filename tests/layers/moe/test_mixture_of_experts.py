"""The sublayer: groups, what is dropped, decoding, what is observed, and what is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small_mixture import BATCH, D_MODEL, LENGTH, ON_TWO_BY_TWO, TERMS, TOKENS, observed

import meshtf as mtf
from meshtf.errors import GraphError, LayoutError, MeshtfError, ShapeError
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import (
    Capacity,
    ExpertChoiceRouter,
    Gates,
    GroupLimitedRouter,
    MixtureOfExperts,
    SwitchRouter,
    TokenGroups,
    Top2Router,
    TopNRouter,
)
from meshtf.layers.transformer import Context, Residual, Sublayer
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan
from tests.built_program import BuiltProgram

SHAPE = [BATCH, LENGTH, D_MODEL]
CAUSAL = Context(AttentionMask(is_causal=True), Tokens())


def test_it_is_a_sublayer() -> None:
    assert isinstance(MixtureOfExperts(4, 8), Sublayer)


def test_a_dropped_token_passes_through_the_residual_connection_unchanged(normal: Callable[..., Any]) -> None:
    """One expert is everybody's first choice, and has two places in each row."""
    layer, residual = MixtureOfExperts(4, 8, SwitchRouter(), capacity=Capacity(1.0)), Residual()
    shape, array = normal(SHAPE)
    array[..., 0] = 5.0

    def program(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
        with mtf.variable_scope("layer"):
            kernel = np.zeros([D_MODEL.size, 4], np.float32)
            kernel[0, 2] = 1.0
            mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=kernel)
            y, seen = layer.observed(x, CAUSAL)
        return y, residual.after(x, y, is_training=False), seen["dropped"]

    y, after, dropped = interpret(program, {"x": (shape, array)}, "all:1").results
    assert y[:, :2].any(axis=-1).all()
    assert not y[:, 2:].any()
    np.testing.assert_array_equal(after[:, 2:], array[:, 2:])
    assert_close(dropped, 4 / 6, terms=2)


@pytest.mark.parametrize(
    ("sizes", "group_size", "expected"),
    [
        ([8, 6], None, (8, 6)),
        ([8, 6], 6, (8, 6)),
        ([8, 6], 4, (16, 3)),
        ([8, 6], 11, (8, 6)),
        ([8, 6], 12, (4, 12)),
        ([8, 6], 23, (4, 12)),
        ([8, 6], 1000, (1, 48)),
        ([8, 2, 6], 5, (24, 4)),
    ],
)
def test_groups_are_parts_of_sequences_or_whole_ones(
    sizes: list[int], group_size: int | None, expected: tuple[int, int]
) -> None:
    names = ["batch", "beam", "length"] if len(sizes) == 3 else ["batch", "length"]
    groups = TokenGroups.of(mtf.Shape(list(zip(names, sizes, strict=True))), group_size)
    assert (groups.group.size, groups.tokens.size) == expected
    assert groups.group.name == "batch"


@pytest.mark.parametrize(
    ("capacity", "layouts"),
    [
        (Capacity(0.25), ON_TWO_BY_TWO[1::2]),
        (None, ON_TWO_BY_TWO[:1]),
        pytest.param(Capacity(0.25), ["", *ON_TWO_BY_TWO], marks=pytest.mark.long),
    ],
    ids=["places", "dropless", "places under every layout"],
)
def test_decoding_routes_each_token_as_the_whole_sequence_does(
    capacity: Capacity | None, layouts: list[str], normal: Callable[..., Any]
) -> None:
    layer = MixtureOfExperts(4, 8, Top2Router(), capacity=capacity)

    def program(x: mtf.Tensor) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        whole, state = layer.fill(x, CAUSAL)
        assert state == []
        position = mtf.zeros(x.mesh, [], tf.int32)
        return whole, [layer.step(mtf.gather(x, n, LENGTH), CAUSAL, position, [])[0] for n in (0, 4)]

    built = BuiltProgram(program, {"x": normal(SHAPE)})
    for layout in layouts:
        whole, steps = built.interpret("rows:2;cols:2", layout).results
        assert_close(np.stack(steps, axis=1), whole[:, [0, 4]], terms=TERMS)


def test_without_capacity_every_choice_has_a_place_however_uneven_they_are(normal: Callable[..., Any]) -> None:
    """Where all tokens choose the same expert, and where each has its own."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        dropped = []
        for number, kernel in enumerate([np.zeros([4, 4]), np.eye(4) * 9, np.eye(4)[:, [0] * 4]]):
            with mtf.variable_scope(f"case_{number}"):
                mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=kernel.astype(np.float32))
                y, seen = MixtureOfExperts(4, 8, TopNRouter(1), capacity=None, activation="linear").observed(x, CAUSAL)
            is_zero = mtf.equal(mtf.reduce_max(mtf.abs(y), reduced_dim=D_MODEL), 0.0)
            dropped += [seen["dropped"], mtf.reduce_sum(mtf.cast(is_zero, tf.float32))]
        return dropped

    shape, array = normal(SHAPE)
    assert interpret(program, {"x": (shape, np.abs(array) + 0.1)}, "all:1").results == [0.0] * 6


def test_what_is_observed_of_even_and_of_uneven_choices(normal: Callable[..., Any]) -> None:
    """With equal logits the first of equal experts takes all; the mean probabilities are even."""

    def program(x: mtf.Tensor) -> dict[str, mtf.Tensor]:
        zero = np.zeros([D_MODEL.size, 4], np.float32)
        mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=zero)
        layer = MixtureOfExperts(4, 8, SwitchRouter(), Gates(z_loss=0.5), Capacity(2.0), balance_loss=0.25)
        return dict(layer.observed(x, CAUSAL)[1])

    seen = interpret(program, {"x": normal(SHAPE)}, "all:1").results
    assert_close(seen["balance"], 1.0, terms=TOKENS.size)
    assert_close(seen["largest_load"], 4.0, terms=TOKENS.size)
    assert_close(seen["dropped"], 0.5, terms=TOKENS.size)
    assert_close(seen["gate_entropy"], math.log(4), terms=(4, 2 * FUNCTION_TERMS))
    assert_close(seen["auxiliary_loss"], 0.25 + 0.5 * math.log(4) ** 2, terms=(4, 4 * FUNCTION_TERMS, TOKENS.size))


@pytest.mark.parametrize(
    "router", [SwitchRouter(), TopNRouter(2), GroupLimitedRouter(2)], ids=lambda r: type(r).__name__
)
def test_the_balance_is_1_if_scores_are_even_whatever_their_sum_is(router: Any, normal: Callable[..., Any]) -> None:
    """Each of 4 sigmoids is 1/2, so they sum to 2."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        zero = np.zeros([D_MODEL.size, 4], np.float32)
        mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=zero)
        layer = MixtureOfExperts(4, 8, router, Gates(scoring="sigmoid"))
        return layer.observed(x, CAUSAL)[1]["balance"]

    assert_close(interpret(program, {"x": normal(SHAPE)}, "all:1").results, 1.0, terms=TOKENS.size)


def test_the_z_loss_is_of_the_logits_also_with_sigmoid_scores(normal: Callable[..., Any]) -> None:
    """The logarithm of a sum of sigmoids is bounded, however large the logits are, and would not keep them small."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        large = np.full([D_MODEL.size, 4], 10.0, np.float32)
        mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=large)
        layer = MixtureOfExperts(4, 8, TopNRouter(2), Gates(z_loss=0.5, scoring="sigmoid"), balance_loss=0.0)
        return layer.observed(x, CAUSAL)[1]["auxiliary_loss"]

    x = np.ones([d.size for d in SHAPE], np.float32)
    logit = 10.0 * D_MODEL.size
    expected = 0.5 * (logit + math.log(4)) ** 2
    assert_close(
        interpret(program, {"x": (SHAPE, x)}, "all:1").results, expected, terms=(4, 4 * FUNCTION_TERMS, TOKENS.size)
    )


@pytest.mark.parametrize("router", [TopNRouter(2), Top2Router(), GroupLimitedRouter(2, is_normalized=True)])
def test_a_token_whose_sigmoids_are_0_gets_nothing(router: Any) -> None:
    """And neither its result nor its gradient is a NaN."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        low = np.full([D_MODEL.size, 4], -100.0, np.float32)
        mtf.get_variable(x.mesh, "router", [D_MODEL, ("_experts", 4)], initializer=low)
        y = MixtureOfExperts(4, 8, router, Gates(scoring="sigmoid"))(x, CAUSAL)
        return [y, *mtf.gradients([mtf.reduce_sum(y)], [x])]

    x = np.ones([d.size for d in SHAPE], np.float32)
    y, gradient = interpret(program, {"x": (SHAPE, x)}, "all:1").results
    assert not y.any()
    assert np.isfinite(gradient).all()


def test_routing_is_in_float32_whatever_activations_are(normal: Callable[..., Any]) -> None:
    layer = MixtureOfExperts(4, 8, Top2Router(), Gates(z_loss=0.1))

    def program(x: mtf.Tensor) -> tuple[mtf.Tensor, dict[str, mtf.Tensor]]:
        return observed(layer)(mtf.cast(x, tf.bfloat16))

    y, seen = interpret(program, {"x": normal(SHAPE)}, "all:1").results
    assert y.dtype == tf.bfloat16.as_numpy_dtype
    assert {x.dtype for x in seen.values()} == {np.dtype(np.float32)}


def test_a_gated_form_is_the_product_of_two_activations(
    check_layers: Callable[..., Any], normal: Callable[..., Any]
) -> None:
    layer = MixtureOfExperts(1, 8, SwitchRouter(), activation=("sigmoid", "linear"))

    def formula(weights: Any, x: tf.Tensor) -> list[tf.Tensor]:
        gate, linear, out = (weights[f"{name}/kernel"][0] for name in ("wi_0", "wi_1", "wo"))
        probability = tf.reduce_sum(tf.nn.softmax(x @ weights["router"]), -1, keepdims=True)
        return [(tf.sigmoid(x @ gate) * (x @ linear)) @ out * probability]

    check_layers(lambda x: [observed(layer)(x)[0]], formula, {"x": normal(SHAPE)}, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_experts": 0}, "num_experts must be a positive integer, and is 0"),
        ({"d_ff": 2.5}, "d_ff must be an integer, and is 2.5"),
        ({"group_size": 0}, "group_size must be a positive integer, and is 0"),
        ({"num_experts": 1}, "a token goes to 2 experts, but num_experts is 1; raise num_experts, or choose"),
        ({"activation": "rleu"}, 'did you mean "relu"'),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, MeshtfError)) as raised:
        MixtureOfExperts(**{"num_experts": 4, "d_ff": 8, **settings})
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Capacity(0.0), "Capacity: factor must be above 0, and is 0.0"),
        (lambda: Capacity(1.0, -1.0), "Capacity: evaluation_factor must be above 0, and is -1.0"),
        (lambda: Gates(jitter=1.0), "Gates: jitter must be in [0, 1), and is 1.0"),
        (lambda: Gates(z_loss=-1.0), "Gates: z_loss must be 0 or more, and is -1.0"),
        (lambda: TopNRouter(0), "TopNRouter: num_choices must be a positive integer, and is 0"),
        (lambda: ExpertChoiceRouter(0), "ExpertChoiceRouter: num_choices must be a positive integer, and is 0"),
    ],
)
def test_parts_that_cannot_be_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_less_than_one_place_is_refused_with_what_would_be_enough(build: Callable[..., Any]) -> None:
    layer = MixtureOfExperts(64, 8, SwitchRouter(), capacity=Capacity(2.0))
    with pytest.raises(ShapeError) as raised:
        build(observed(layer, is_training=True), SHAPE)
    text = str(raised.value)
    assert "below one token: 6 tokens in a group · 1 choices · factor 2 / 64 experts = 0.188" in text
    assert "groups of at least 32 tokens (MixtureOfExperts.group_size)" in text
    assert "raise the factor to 10.7" in text
    assert "batch:8 length:6 d_model:4" in text


@pytest.mark.parametrize(("tokens", "experts", "enough"), [(3, 4, 1.34), (7, 512, 73.2), (1, 64, 64.0)])
def test_the_factor_that_the_message_gives_is_enough(tokens: int, experts: int, enough: float) -> None:
    with pytest.raises(ShapeError, match=f"raise the factor to {enough:g}, "):
        Capacity(0.9)(tokens, 1, experts, is_training=True)
    assert Capacity(enough)(tokens, 1, experts, is_training=True) >= 1


@pytest.mark.parametrize(("factor", "tokens", "places"), [(1.1, 100, 11), (1.1, 101, 12), (2.3, 100, 23), (1, 100, 10)])
def test_places_are_rounded_up_only_if_they_are_not_whole(factor: float, tokens: int, places: int) -> None:
    assert Capacity(factor)(tokens, 1, 10, is_training=True) == places


def test_a_text_shorter_than_the_groups_of_training_has_one_place(normal: Callable[..., Any]) -> None:
    """As an input of an encoder that decoding reads: each expert takes the first token that chooses it."""
    layer = MixtureOfExperts(64, 8, SwitchRouter(), capacity=Capacity(2.0), activation="linear")
    y, seen = interpret(observed(layer), {"x": normal(SHAPE)}, "all:1").results
    assert y[:, 0].any(axis=-1).all()
    assert_close(seen["dropped"], 1 - y.any(axis=-1).mean(), terms=TOKENS.size)


def test_a_vector_without_tokens_is_refused(build: Callable[..., Any]) -> None:
    with pytest.raises(ShapeError, match="needs a dimension that counts tokens, and x has only that of vectors"):
        build(observed(MixtureOfExperts(4, 8)), [D_MODEL])


def test_experts_that_choose_are_refused_where_the_future_is_not_known(build: Callable[..., Any]) -> None:
    layer = MixtureOfExperts(4, 8, ExpertChoiceRouter())
    for call in (lambda x: layer(x, CAUSAL), lambda x: layer.step(x, CAUSAL, mtf.zeros(x.mesh, [], tf.int32), [])):
        with pytest.raises(
            GraphError, match="ExpertChoiceRouter: which tokens an expert takes depends on later tokens"
        ):
            build(call, SHAPE)
    with pytest.raises(GraphError, match="as many tokens as its capacity allows; give a capacity"):
        build(observed(MixtureOfExperts(4, 8, ExpertChoiceRouter(), capacity=None)), SHAPE)


@pytest.mark.parametrize(
    ("layout", "facts"),
    [
        ("experts:all", ['"experts"', "6", "16"]),
        ("batch:all;d_model:all", ['"batch"', '"d_model"', '"all"']),
        ("experts:all;d_model:all", ['"experts" and "d_model" are both split over mesh axis "all"']),
    ],
)
def test_layouts_that_do_not_fit_are_refused_with_sizes(layout: str, facts: list[str]) -> None:
    mesh = "all:16" if layout == "experts:all" else "all:2"
    with pytest.raises(LayoutError) as raised:
        plan(observed(MixtureOfExperts(6, 8)), {"x": mtf.TensorSpec(SHAPE)}, mesh, layout)
    assert all(fact in str(raised.value) for fact in facts)
