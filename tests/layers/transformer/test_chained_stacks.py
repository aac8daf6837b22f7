"""A chain of stacks computes what one stack of all their layers does, under every layout."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, AttentionMask, Tokens
from meshtf.layers.moe import MixtureOfExperts
from meshtf.layers.transformer import (
    AUXILIARY_LOSS,
    ChainedStacks,
    Context,
    FeedForward,
    Residual,
    SelfAttention,
    TransformerStack,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

X = mtf.Shape([("batch", 2), ("length", 4), ("d_model", 8)])
VALUES = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
SUBLAYERS = [SelfAttention(AttentionConfig(num_heads=2, d_kv=4)), FeedForward(8)]


def chain(*numbers: int, use_final_norm: bool = True) -> ChainedStacks:
    return ChainedStacks([TransformerStack(SUBLAYERS, number, use_final_norm=use_final_norm) for number in numbers])


def applied(chained: ChainedStacks, mesh_shape: str = "rows:1", layout: str = "") -> np.ndarray:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return chained(x, Context(AttentionMask(is_causal=True), Tokens.along(x)))

    return interpret(program, {"x": (X, VALUES)}, mesh_shape, layout).results


@pytest.mark.parametrize("use_final_norm", [False, True])
def test_a_chain_ends_once(use_final_norm: bool) -> None:
    """With the norm of its last stack, in no stack's scope; without one, as the stacks one by one."""
    graph = mtf.Graph()
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), X)
        chain(1, 2, use_final_norm=use_final_norm)(x, Context(AttentionMask(is_causal=True), Tokens.along(x)))
    scopes = {name.split("/")[0] for name in graph.variables}
    assert scopes == {"stack_0", "stack_1", *(["final"] if use_final_norm else [])}
    ends = applied(chain(1, 2, use_final_norm=use_final_norm))
    squares = np.mean(ends**2, -1)
    assert np.allclose(squares, 1.0, atol=1e-3) is use_final_norm


def test_stacks_go_on_from_each_other() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        context = Context(AttentionMask(is_causal=True), Tokens.along(x))
        y = x
        for number, stack in enumerate(chain(1, 2, use_final_norm=False).stacks):
            with mtf.variable_scope(f"stack_{number}"):
                y = stack(y, context)
        return [y]

    (expected,) = interpret(program, {"x": (X, VALUES)}, "rows:1").results
    for mesh_shape, layout in (("rows:1", ""), ("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols")):
        found = applied(chain(1, 2, use_final_norm=False), mesh_shape, layout)
        assert_close(found, expected, terms=3 * (8 * FUNCTION_TERMS + 64))


def test_observations_are_told_by_stack() -> None:
    experts = MixtureOfExperts(num_experts=2, d_ff=8, capacity=None)
    chained = ChainedStacks(
        [TransformerStack([experts], 1), TransformerStack([FeedForward(8), experts], 2, Residual())]
    )
    graph = mtf.Graph()
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), X)
        told = chained.observed(x, Context(AttentionMask(is_causal=True), Tokens.along(x)))[1]
    losses = {name: str(x.shape) for name, x in told.scalars.items() if name.endswith(AUXILIARY_LOSS)}
    assert losses == {
        f"stack_0/mixture_of_experts/{AUXILIARY_LOSS}": "layers:1",
        f"stack_1/mixture_of_experts/{AUXILIARY_LOSS}": "layers:2",
    }


@pytest.mark.parametrize("stacks", [[], [SUBLAYERS[0]]])
def test_a_chain_of_no_stacks_is_refused(stacks: list[object]) -> None:
    with pytest.raises(
        ValueError, match=r"ChainedStacks: stacks must be a list of one TransformerStack or more, and is"
    ):
        ChainedStacks(stacks)  # type: ignore[arg-type]
