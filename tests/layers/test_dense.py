from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.transformer import FeedForward
from meshtf.layers.transformer.context import Context
from meshtf.tensorflow_private.xla_modules import parsed_hlo
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


@pytest.mark.parametrize("layout", ["", "batch:rows;d_ff:cols", "d_ff:rows+cols"])
def test_padded_dimensions_change_no_step_of_training(layout: str) -> None:
    """The sigmoid of padding is not 0, so its weights would be trained if the padding stayed in the result."""
    generator, sizes = np.random.default_rng(0), {"wi/kernel": [4, 5], "wi/bias": [5], "wo/kernel": [5, 4]}
    weights = {f"dense/{name}": generator.normal(size=size).astype(np.float32) for name, size in sizes.items()}
    whole = generator.normal(size=[4, 8]).astype(np.float32)

    def trained(mesh_impl: mtf.GpuMeshImpl, padded: str, kv: int) -> tuple[list[float], dict[str, np.ndarray]]:
        def train_step(x: mtf.Tensor) -> mtf.Tensor:
            with mtf.variable_scope("dense"):
                h = mtf.layers.dense(x, padded, activation="sigmoid", unpadded_dims="d_ff:5 kv:4", name="wi")
                y = mtf.layers.dense(h, "kv:4", use_bias=False, unpadded_dims=("d_ff", 5), name="wo")
            loss = mtf.reduce_mean(mtf.square(y - x["kv", :4]))
            mtf.optimize.AdamWOptimizer(0.1).minimize(loss)
            return loss

        x = whole[:, :kv]  # from the fifth on it is padding, and not 0
        step = mtf.function(train_step, mesh_impl, {"x": mtf.TensorSpec([BATCH, ("kv", kv)])})
        step.initialize(weights)
        losses = [float(step(x=x)) for _ in range(4)]
        return losses, {name: step.variables[name] for name in weights}

    mtf.virtual_gpus(4)
    losses, variables = trained(mtf.GpuMeshImpl("all:1", ""), "d_ff:5", 4)
    padded_losses, padded_variables = trained(mtf.GpuMeshImpl("rows:2;cols:2", layout), "d_ff:8", 8)
    # A step's relative error is below some hundred roundings, and Adam divides gradients by their own size.
    np.testing.assert_allclose(padded_losses, losses, rtol=1e-4)
    for name, value in variables.items():
        np.testing.assert_allclose(padded_variables[name], value, rtol=1e-3, atol=1e-3, err_msg=name)


def test_padding_is_in_programs_only() -> None:
    layer = FeedForward(5, ("sigmoid", "linear"), use_bias=True, multiple=8)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return layer(x, Context(AttentionMask(), Tokens(mtf.range(x.mesh, BATCH))))

    mtf.virtual_gpus(4)
    step = mtf.function(program, mtf.GpuMeshImpl("all:1", ""), {"x": mtf.TensorSpec([BATCH, KV])})
    assert {name: str(v.unpadded_shape) for name, v in step.graph.variables.items()} == {
        "wi_0/kernel": "kv:4 d_ff:5",
        "wi_0/bias": "d_ff:5",
        "wi_1/kernel": "kv:4 d_ff:5",
        "wi_1/bias": "d_ff:5",
        "wo/kernel": "d_ff:5 kv:4",
        "wo/bias": "kv:4",
    }
    hlo = step.hlo()
    assert hlo is not None
    sizes = {size for c in parsed_hlo(hlo).computations for i in c.instructions for size in i.shape.dimensions}
    assert 8 in sizes
    assert 5 not in sizes


def test_wrong_padding(build: Callable[..., mtf.Graph]) -> None:
    for wrong in ("d_ff:5", "hidden:9"):
        with pytest.raises(ShapeError, match=rf"unpadded_dims has \[{wrong}\], and the kernel sums over \[kv:4\] and"):
            build(lambda x, wrong=wrong: mtf.layers.dense(x, [HIDDEN], unpadded_dims=wrong), [BATCH, KV])
