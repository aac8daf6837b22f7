"""Every router against a loop over tokens: values and gradients, on one core and under several layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small_mixture import D_MODEL, LENGTH, ON_TWO_BY_TWO, TERMS, observed, segments, with_loss
from token_loops import TokenLoop

import meshtf as mtf
from meshtf.layers.moe import (
    Capacity,
    ExpertChoiceRouter,
    Gates,
    MixtureOfExperts,
    ProductDispatch,
    SwitchRouter,
    Top2Router,
    TopNRouter,
)
from meshtf.testing import assert_close, interpret, largest, rounding_bound
from tests.house.sharpest import sharpest

EXPERTS, D_FF = 4, 8
BATCH = mtf.Dimension("batch", 4)
TOKENS, SHAPE = mtf.Shape([BATCH, LENGTH]), [BATCH, LENGTH, D_MODEL]
SEGMENTS = segments()[-BATCH.size :]


EVEN = Capacity(1.0)


def mixture(router: Any, capacity: Capacity | None = EVEN, **settings: Any) -> MixtureOfExperts:
    return MixtureOfExperts(EXPERTS, D_FF, router, Gates(z_loss=0.1), capacity, balance_loss=0.5, **settings)


def loop(kind: str, num_choices: int, capacity: int | None, group_size: int = LENGTH.size) -> TokenLoop:
    return TokenLoop(kind, num_choices, capacity, group_size, balance_loss=0.5, z_loss=0.1)


NOISY = MixtureOfExperts(EXPERTS, D_FF, Top2Router(), Gates(jitter=0.3), dropout_rate=0.2)

CASES = {
    "top_2": (mixture(Top2Router()), loop("top_2", 2, 3)),
    "switch": (mixture(SwitchRouter()), loop("switch", 1, 2)),
    "top_n": (mixture(TopNRouter(3)), loop("top_n", 3, 5)),
    "expert_choice": (mixture(ExpertChoiceRouter()), loop("expert_choice", 2, 3)),
    "dropless": (mixture(Top2Router(), None), loop("top_2", 2, None)),
    "groups_of_several_sequences": (mixture(Top2Router(), group_size=13), loop("top_2", 2, 6, 12)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_router_is_its_loop_over_tokens(
    case: str, check_layers: Callable[..., Any], normal: Callable[..., Any]
) -> None:
    layer, written_out = CASES[case]
    # Two of them choose as top_2 does; one has no places that a layout could split, and is slow.
    layouts = {"top_2": ON_TWO_BY_TWO, "expert_choice": ON_TWO_BY_TWO[:-1], "dropless": []}
    check_layers(with_loss(layer), written_out, {"x": normal(SHAPE)}, layouts.get(case, ON_TWO_BY_TWO[3:4]))


@pytest.mark.parametrize("case", sharpest(["top_2", "expert_choice", "dropless"], ["top_2", "expert_choice"]))
def test_padding_goes_to_no_expert_and_takes_no_place(
    case: str, check_layers: Callable[..., Any], normal: Callable[..., Any]
) -> None:
    layer, written_out = CASES[case]
    inputs = {"x": normal(SHAPE), "segments": (TOKENS, padded())}
    done = check_layers(with_loss(layer), lambda w, x, segments: written_out(w, x, segments.numpy()), inputs, [])
    (y, _), *_ = done.results
    assert not y[padded() == 0].any()
    assert y[padded() > 0].any()


def padded() -> np.ndarray:
    """As `SEGMENTS`, with tokens in every row: a group without any has a mean of nothing in the loop."""
    found = SEGMENTS.copy()
    found[-1, 0] = 1
    return found


def test_a_row_of_padding_alone_gives_zeros_and_a_finite_loss(normal: Callable[..., Any]) -> None:
    layer = CASES["top_2"][0]
    y, seen = interpret(observed(layer), {"x": normal(SHAPE), "segments": (TOKENS, SEGMENTS)}, "all:1").results
    assert not y[-1].any()
    assert all(np.isfinite(x).all() for x in seen.values())


@pytest.mark.parametrize("case", sharpest(["top_2", "expert_choice", "groups_of_several_sequences"], ["expert_choice"]))
def test_products_with_masks_give_the_same_as_lookups(
    case: str, check_layers: Callable[..., Any], normal: Callable[..., Any]
) -> None:
    layer, written_out = CASES[case]
    by_products = dataclasses.replace(layer, dispatch=ProductDispatch())
    check_layers(with_loss(by_products), written_out, {"x": normal(SHAPE)}, ON_TWO_BY_TWO[:1])


def test_with_capacity_to_spare_top_2_is_the_weighted_sum_of_two_experts(normal: Callable[..., Any]) -> None:
    roomy = mixture(Top2Router(), Capacity(float(EXPERTS)))

    def both(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor, dict[str, mtf.Tensor]]:
        y, seen = observed(roomy)(x)
        experts = mtf.Dimension("experts", EXPERTS)
        weights = {v.full_name: v.value for v in x.graph.trainable_variables}
        gates = mtf.softmax(mtf.einsum([x, mtf.rename_dimension(weights["router"], "_experts", "experts")]), experts)
        largest, second = (mtf.nth_largest_element(gates, n, experts) for n in (0, 1))
        kept = mtf.where(mtf.greater_equal(gates, second), gates, 0.0) / (largest + second)
        h = mtf.relu(mtf.einsum([x, weights["wi/kernel"]], reduced_dims=[D_MODEL]))
        return y, mtf.einsum([h, weights["wo/kernel"], kept], output_shape=x.shape), seen

    y, plain, seen = interpret(both, {"x": normal(SHAPE)}, "all:1").results
    assert_close(y, plain, terms=TERMS)
    assert seen["dropped"] == 0.0


def test_the_second_expert_is_taken_with_twice_its_weight_as_probability_in_training(
    normal: Callable[..., Any],
) -> None:
    layer = mixture(Top2Router(), Capacity(float(EXPERTS)))
    shape = [mtf.Dimension("batch", 32), mtf.Dimension("length", 64), D_MODEL]

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        routers = [Top2Router(), Top2Router(second_is_random=False), TopNRouter(1)]
        layers = [dataclasses.replace(layer, router=router) for router in routers]
        random, both, first = (observed(each, is_training=True)(x)[0] for each in layers)
        router = next(v.value for v in x.graph.trainable_variables if v.full_name == "router")
        gates = mtf.softmax(mtf.einsum([x, router]), router.shape[-1])
        one, two = (mtf.nth_largest_element(gates, n, router.shape[-1]) for n in (0, 1))
        return [random, both, first * (one / (one + two)), two / (one + two)]

    random, both, first, weight = interpret(program, {"x": normal(shape)}, "all:1").results
    is_both = np.abs(random - both).max(axis=-1) <= rounding_bound(tf.float32, TERMS, largest(both))
    assert_close(random[~is_both], first[~is_both], terms=TERMS)
    chance = np.minimum(1.0, 2.0 * weight)
    assert abs(is_both.mean() - chance.mean()) < 4 * np.sqrt((chance * (1 - chance)).sum()) / chance.size
    assert 0.2 < chance.mean() < 0.9


@pytest.mark.parametrize("layout", sharpest(ON_TWO_BY_TWO, ON_TWO_BY_TWO[1::3]))
def test_what_is_random_in_training_is_the_same_under_every_layout(
    layout: str, one_core: list[Any], normal: Callable[..., Any]
) -> None:
    done = interpret(observed(NOISY, is_training=True), {"x": normal(SHAPE)}, "rows:2;cols:2", layout)
    for actual, expected in zip(tf.nest.flatten(done.results), one_core, strict=True):
        assert_close(actual, expected, terms=(*TERMS, TOKENS.size))


@pytest.fixture(name="one_core", scope="module")
def _one_core() -> list[Any]:
    x = np.random.default_rng(0).normal(size=[d.size for d in SHAPE]).astype(np.float32)
    return tf.nest.flatten(interpret(observed(NOISY, is_training=True), {"x": (SHAPE, x)}, "all:1").results)
