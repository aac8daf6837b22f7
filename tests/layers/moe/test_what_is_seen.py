"""Load and importance of each expert, against counts of tokens; and what the report says that the alltoalls cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_mixture import BATCH, D_MODEL, LENGTH, ON_TWO_BY_TWO, TOKENS, observed, segments

import meshtf as mtf
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.moe import Capacity, ExpertChoiceRouter, MixtureOfExperts, SwitchRouter, Top2Router
from meshtf.layers.transformer import TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.built_program import BuiltProgram
from tests.house.sharpest import sharpest

EXPERTS = 4
SHAPE = [BATCH, LENGTH, D_MODEL]


def probabilities(x: np.ndarray, router: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x.astype(np.float64) @ router)
    return exponentials / exponentials.sum(-1, keepdims=True)


def counts(gates: np.ndarray, is_routed: np.ndarray, num_choices: int) -> np.ndarray:
    """How many tokens choose each expert, whether it has a place for them or not."""
    found = np.zeros(EXPERTS)
    for example, token in np.argwhere(is_routed):
        for expert in np.argsort(-gates[example, token], kind="stable")[:num_choices]:
            found[expert] += 1
    return found


@pytest.mark.parametrize(
    ("router", "num_choices", "is_padded"),
    sharpest(
        [
            (router, n, is_padded)
            for router, n in ((Top2Router(), 2), (SwitchRouter(), 1))
            for is_padded in (False, True)
        ],
        [(Top2Router(), 2, True), (SwitchRouter(), 1, False)],
    ),
)
def test_load_and_importance_are_of_the_tokens_that_are_no_padding(
    router: Any, num_choices: int, is_padded: bool, normal: Callable[..., Any]
) -> None:
    """Under several layouts, with places for a part of the tokens only."""
    layer = MixtureOfExperts(EXPERTS, 8, router, capacity=Capacity(0.7))
    inputs = {"x": normal(SHAPE), **({"segments": (TOKENS, segments())} if is_padded else {})}
    is_routed = segments() > 0 if is_padded else np.ones(TOKENS.to_integer_list, bool)
    program = BuiltProgram(observed(layer), inputs)
    for layout in ["", *ON_TWO_BY_TWO[is_padded::2]]:
        done = program.interpret("rows:2;cols:2", layout)
        _, seen = done.results
        gates = probabilities(inputs["x"][1], done.variables["router"])
        number = counts(gates, is_routed, num_choices)
        assert_close(seen["load"], number / number.sum(), terms=2, what=layout)
        assert_close(
            seen["importance"],
            gates[is_routed].mean(0),
            terms=(D_MODEL.size, 4 + 2 * FUNCTION_TERMS, TOKENS.size),
            what=layout,
        )
        assert 0 < seen["dropped"] < 1


def test_experts_that_choose_have_as_many_tokens_as_places_and_tokens(normal: Callable[..., Any]) -> None:
    """Some rows have fewer tokens than an expert has places."""
    layer = MixtureOfExperts(EXPERTS, 8, ExpertChoiceRouter(), capacity=Capacity(1.0))
    inputs = {"x": normal(SHAPE), "segments": (TOKENS, segments())}
    done = interpret(observed(layer), inputs, "rows:2;cols:2", ON_TWO_BY_TWO[0])
    _, seen = done.results
    gates = probabilities(inputs["x"][1], done.variables["router"])
    assert_close(seen["load"], np.full(EXPERTS, 1 / EXPERTS), terms=TOKENS.size)
    assert_close(
        seen["importance"], gates[segments() > 0].mean(0), terms=(D_MODEL.size, 4 + 2 * FUNCTION_TERMS, TOKENS.size)
    )


def test_a_model_shows_them_of_each_layer() -> None:
    """The same as a scan, unrolled and split; each layer has a router of its own."""
    tokens = mtf.Shape([("batch", 4), ("length", 8)])
    ids = np.random.default_rng(0).integers(2, 50, tokens.to_integer_list).astype(np.int32)

    def vectors(mesh: str = "all:1", layout: str = "", *, unroll: bool = False) -> list[np.ndarray]:
        stack = TransformerStack([MixtureOfExperts(EXPERTS, 16)], 3, unroll=unroll)
        model = TransformerLM(16, TokenEmbedding(VocabularyEmbedding(50)), stack)

        def program(targets: mtf.Tensor) -> list[mtf.Tensor]:
            metrics = model.metrics({"targets": targets}, False)
            return [metrics[f"mixture_of_experts/{name}"][0] for name in ("load", "importance")]

        return interpret(program, {"targets": (tokens, ids)}, mesh, layout).results

    expected = vectors()
    for found in (vectors(unroll=True), vectors("rows:2;cols:2", "batch:rows;experts:rows;d_ff:cols")):
        for own, wanted in zip(found, expected, strict=True):
            assert_close(own, wanted, terms=(3 * (4 * 16 + 4 * FUNCTION_TERMS), 32))
    for vector in expected:
        assert vector.shape == (3, EXPERTS)
        assert_close(vector.sum(1), 1.0, terms=(4 + 2 * FUNCTION_TERMS, 32))
        assert np.ptp(vector, axis=0).min() > 1e-3


def test_the_report_prices_the_alltoalls() -> None:
    """To the experts and back, forward and backward: of each core's places all but those of its own experts."""
    layer = MixtureOfExperts(EXPERTS, 8, Top2Router(), capacity=Capacity(2.0))

    def gradient(x: mtf.Tensor) -> mtf.Tensor:
        y, seen = observed(layer)(x)
        (grad,) = mtf.gradients(mtf.reduce_sum(mtf.square(y)) + seen["auxiliary_loss"], [x])
        assert grad is not None
        return grad

    mesh_impl = mtf.PlanMeshImpl("all:4", "batch:all;experts:all")
    report = mtf.function(gradient, mesh_impl, inputs={"x": mtf.TensorSpec(SHAPE)}).report()
    places = EXPERTS * (LENGTH.size * 2 * 2 // EXPERTS)
    price = BATCH.size // 4 * places * D_MODEL.size * 4 * 3 // 4
    (priced,) = [t for t in report.traffic if t.kind == "all_to_all"]
    assert (priced.axes, priced.count, priced.bytes_sent) == (("all",), 4, 4 * price)
    assert [line.split() for line in str(report).splitlines() if line.startswith("  all_to_all")] == [
        ["all_to_all", "all", "4", *f"{4 * price / 1024:.1f} KiB".split()]
    ]
