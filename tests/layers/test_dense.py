from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import assert_close, interpret

BATCH, LENGTH, HEADS = mtf.Dimension("batch", 4), mtf.Dimension("length", 4), mtf.Dimension("heads", 2)
KV, HIDDEN = mtf.Dimension("kv", 4), mtf.Dimension("hidden", 8)


def run(
    layer: Callable[[mtf.Tensor], mtf.Tensor], shape: list[mtf.Dimension], layout: str
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The input, the layer's result, and its variables."""
    x = np.random.default_rng(0).normal(size=[d.size for d in shape]).astype(np.float32)
    done = interpret(layer, {"x": (shape, x)}, "rows:2;cols:2", layout, seed=1)
    return x, done.results, done.variables


@pytest.mark.parametrize("layout", ["", "batch:rows;hidden:cols", "kv:rows;hidden:cols", "hidden:rows+cols"])
def test_sums_over_the_last_dimension_by_default(layout: str) -> None:
    def layer(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.dense(x, [HIDDEN], activation=mtf.relu, name="first")

    x, y, variables = run(layer, [BATCH, KV], layout)
    assert {name: value.shape for name, value in variables.items()} == {"first/kernel": (4, 8), "first/bias": (8,)}
    assert not variables["first/bias"].any()
    assert_close(y, np.maximum(x @ variables["first/kernel"], 0), terms=4 + 1)


@pytest.mark.parametrize("layout", ["", "batch:rows;heads:cols", "heads:rows;hidden:cols", "kv:rows;length:cols"])
def test_several_reduced_and_new_dimensions(layout: str) -> None:
    def layer(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.dense(x, [mtf.Dimension("out", 2), HIDDEN], reduced_dims=[HEADS, KV], use_bias=False)

    x, y, variables = run(layer, [BATCH, HEADS, LENGTH, KV], layout)
    assert set(variables) == {"dense/kernel"}
    expected = np.einsum("bhlk,hkoi->bloi", x, variables["dense/kernel"])
    assert_close(y, expected, terms=8)


def test_one_dimension_in_place_of_a_list() -> None:
    def layer(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.layers.dense(x, HIDDEN),
            mtf.layers.dense(x, HIDDEN, LENGTH, expert_dims=BATCH),
            mtf.layers.dense_product(x, KV, HIDDEN, "relu"),
        ]

    plan = mtf.testing.plan(layer, {"x": mtf.TensorSpec([BATCH, LENGTH, KV])}, "rows:2")
    assert [str(f.shape) for f in plan.fetches] == [
        "batch:4 length:4 hidden:8",
        "batch:4 kv:4 hidden:8",
        "batch:4 length:4 hidden:8",
    ]


@pytest.mark.parametrize("layout", ["", "hidden:cols", "batch:rows;hidden:cols"])
def test_input_dimension_that_clashes_is_renamed_in_the_kernel(layout: str) -> None:
    kernels: list[mtf.Shape] = []

    def layer(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.layers.dense(x, [mtf.Dimension("hidden", 4)], name="square")
        kernels.append(x.graph.variables["square/kernel"].shape)
        return y

    x, y, variables = run(layer, [BATCH, HIDDEN], layout)
    assert kernels[0] == mtf.Shape([("_hidden", 8), ("hidden", 4)])
    assert_close(y, x @ variables["square/kernel"], terms=8 + 1)


@pytest.mark.parametrize("layout", ["", "heads:rows;hidden:cols", "batch:rows;kv:cols"])
def test_experts_have_kernels_of_their_own(layout: str) -> None:
    def layer(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.dense(x, [HIDDEN], expert_dims=[HEADS])

    x, y, variables = run(layer, [BATCH, HEADS, KV], layout)
    assert variables["dense/kernel"].shape == (2, 4, 8)
    assert variables["dense/bias"].shape == (2, 8)
    assert_close(y, np.einsum("bhk,hkn->bhn", x, variables["dense/kernel"]), terms=4 + 1)


def test_unnamed_layers_get_scopes_of_their_own(build: Callable[..., mtf.Graph]) -> None:
    graph = build(lambda x: mtf.layers.dense(mtf.layers.dense(x, [HIDDEN]), [KV]), [BATCH, KV])
    assert set(graph.variables) == {"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}


def test_reduced_dimension_that_is_not_there(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r'no dimension "kvs" in \[batch:4 kv:4\]; did you mean "kv"\?'):
        build(lambda x: mtf.layers.dense(x, [HIDDEN], reduced_dims=[mtf.Dimension("kvs", 4)]), [BATCH, KV])


def test_activation_by_name(build: Callable[..., mtf.Graph]) -> None:
    graph = build(lambda x: mtf.layers.dense(x, [HIDDEN], activation="tanh"), [BATCH, KV])
    assert graph.operations[-1].name == "dense/tanh"
    with pytest.raises(GraphError, match=r"activation 'tan' is not a function; did you mean \"tanh\"\?"):
        build(lambda x: mtf.layers.dense(x, [HIDDEN], activation="tan"), [BATCH, KV])


def test_new_dimension_that_x_keeps(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r'"batch"'):
        build(lambda x: mtf.layers.dense(x, [BATCH]), [BATCH, KV])
