"""A stack of layers is the same unrolled and as a scan: variables, initial values, random bits, gradients, updates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, Interpretation, assert_close, interpret
from tests.built_program import BuiltProgram

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 4), mtf.Dimension("d_model", 6), mtf.Dimension("d_ff", 8)
LAYERS = mtf.Dimension("layers", 4)
LAYOUTS = [
    ("rows:2", "batch:rows"),
    ("rows:2;cols:3", "d_ff:rows;d_model:cols"),
    ("rows:2", "layers:rows"),
]
TERMS = (2 * LAYERS.size * (D_MODEL.size + D_FF.size + FUNCTION_TERMS), BATCH.size)
"""Roundings of one step: through the layers and back, and a sum over the batch."""


def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    (x,) = carried
    h = mtf.layers.dense(x, [D_FF], activation=mtf.tanh)
    h = mtf.dropout(h, True, rate=0.3)
    y = x + mtf.layers.dense(h, [D_MODEL], [D_FF], name="out") * (parts[0] if parts else 1.0)
    return [mtf.dropout(y, True, rate=0.1)], [mtf.reduce_mean(mtf.square(y), reduced_dim=D_MODEL)]


def update(loss: mtf.Tensor) -> None:
    """A step of gradient descent with momentum."""
    variables = loss.graph.trainable_variables
    for variable, grad in zip(variables, mtf.gradients(loss, [v.value for v in variables]), strict=True):
        momentum = mtf.like_variable(variable, "momentum")
        mtf.assign_sub(variable, 0.01 * mtf.assign(momentum, 0.9 * momentum + grad))


def program(unroll: bool, recompute: str | None = None):  # noqa: ANN201
    def step(x: mtf.Tensor, scales: mtf.Tensor) -> dict[str, mtf.Tensor]:
        with mtf.variable_scope("decoder"):
            (y,), (sizes,) = mtf.layer_stack(layer, x, LAYERS, scales, unroll=unroll, recompute=recompute)
        loss = mtf.reduce_sum(mtf.square(y)) + mtf.reduce_sum(sizes)
        update(loss)
        return {"loss": loss, "y": y, "sizes": sizes, "grad": mtf.gradients(loss, scales)[0]}

    return step


def specs() -> dict[str, mtf.TensorSpec]:
    return {"x": mtf.TensorSpec([BATCH, D_MODEL]), "scales": mtf.TensorSpec([LAYERS])}


FEEDS = {
    "x": np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32),
    "scales": np.linspace(0.5, 1.5, 4).astype(np.float32),
}


def by_saved_name(step: mtf.Function) -> dict[str, np.ndarray]:
    """Every layer's part of every variable, under its name in files."""
    saved = {}
    for name in step.variables:
        slices = step.variables.slices(name)
        whole = slices.numpy()
        parts = whole if slices.stacked_dims.ndims else [whole]
        saved.update(zip(slices.saved_names, parts, strict=True))
    return saved


def test_a_scan_and_unrolled_layers_have_the_same_variables_random_bits_and_updates() -> None:
    built = {unroll: BuiltProgram(program(unroll, "nested"), FEEDS_BY_SHAPE) for unroll in (False, True)}
    scanned, unrolled = (built[unroll].interpret("rows:2", "batch:rows") for unroll in (False, True))
    names = {unroll: saved_names(each.graph) for unroll, each in built.items()}
    after, expected = (by_name(names[unroll], done) for unroll, done in ((False, scanned), (True, unrolled)))
    assert sorted(after) == sorted(expected)
    assert "decoder/layer_003/dense/kernel/momentum" in expected
    assert np.ptp(expected["decoder/layer_000/dense/kernel"] - expected["decoder/layer_001/dense/kernel"]) > 0.1
    for name, value in unrolled.results.items():
        assert_close(scanned.results[name], value, terms=TERMS, what=name)
    for name, value in expected.items():
        assert_close(after[name], value, terms=TERMS, steps=1, what=name)


def saved_names(graph: mtf.Graph) -> dict[str, tuple[Sequence[str], bool]]:
    """Of each variable, its names in files, and whether it is a stack of several."""
    variables = [v for v in graph.variables.values() if isinstance(v, mtf.Variable)]
    return {v.full_name: (v.saved_names, v.stacked_dims.ndims > 0) for v in variables}


def by_name(names: Mapping[str, tuple[Sequence[str], bool]], done: Interpretation) -> dict[str, np.ndarray]:
    """Every layer's part of every variable, under its name in files."""
    found: dict[str, np.ndarray] = {}
    for name, value in done.variables.items():
        saved, is_stack = names[name]
        found.update(zip(saved, value if is_stack else [value], strict=True))
    return found


@pytest.mark.long
@pytest.mark.parametrize("recompute", ["nested", None, "nothing", "products"])
def test_so_they_have_on_devices(recompute: str | None) -> None:
    mesh_impl = mtf.SpmdMeshImpl("rows:2", "batch:rows")
    scanned = mtf.function(program(False, recompute), mesh_impl, inputs=specs(), seed=3, name="step")
    unrolled = mtf.function(program(True, recompute), mesh_impl, inputs=specs(), seed=3, name="step")
    scanned.initialize()
    unrolled.initialize()
    initial, expected = by_saved_name(scanned), by_saved_name(unrolled)
    assert sorted(initial) == sorted(expected)
    assert "decoder/layer_003/dense/kernel/momentum" in expected
    for name, value in expected.items():
        np.testing.assert_array_equal(initial[name], value, err_msg=name)
    assert np.ptp(expected["decoder/layer_000/dense/kernel"] - expected["decoder/layer_001/dense/kernel"]) > 0.1
    for number in range(2):
        results, wanted = scanned(**FEEDS), unrolled(**FEEDS)
        for name in wanted:
            assert_close(results[name], wanted[name], terms=TERMS, steps=number, what=name)
    after, expected = by_saved_name(scanned), by_saved_name(unrolled)
    for name, value in expected.items():
        assert_close(after[name], value, terms=TERMS, steps=2, what=name)


@pytest.mark.parametrize("unroll", [False, True])
def test_a_part_of_a_layer_may_be_computed_again(unroll: bool) -> None:
    def half(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (y, size) = mtf.recompute_grad(lambda x: [*layer([x], parts)[0], mtf.reduce_sum(x)], carried)
        return [y], [size]

    def step(x: mtf.Tensor, scales: mtf.Tensor, fn: Callable[..., Any]) -> list[mtf.Tensor]:
        (y,), _ = mtf.layer_stack(fn, x, LAYERS, scales, unroll=unroll)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [x, scales])]

    arrays = {"x": (specs()["x"].shape, FEEDS["x"]), "scales": (specs()["scales"].shape, FEEDS["scales"])}
    plain, recomputed = (interpret(functools.partial(step, fn=fn), arrays, *LAYOUTS[0]) for fn in (layer, half))
    for expected, result in zip(plain.results, recomputed.results, strict=True):
        assert_close(result, expected, terms=TERMS)


@pytest.mark.parametrize("unroll", [False, True])
def test_a_stack_of_no_layers_returns_what_it_is_given(unroll: bool) -> None:
    def step(x: mtf.Tensor, scales: mtf.Tensor) -> list[mtf.Tensor | None]:
        (y,), (sizes,) = mtf.layer_stack(layer, x, ("layers", 0), scales, unroll=unroll)
        return [y, sizes, *mtf.gradients([mtf.reduce_sum(y) + mtf.reduce_sum(sizes)], [x])]

    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    inputs = {"x": ([BATCH, D_MODEL], x), "scales": ("layers:0", np.zeros(0, np.float32))}
    y, sizes, grad = interpret(step, inputs, "rows:2", "batch:rows").results
    np.testing.assert_array_equal([y, grad], [x, np.ones_like(x)])
    assert sizes.shape == (0, 4)


def test_no_layout_changes_a_stack() -> None:
    built = BuiltProgram(program(False), FEEDS_BY_SHAPE)
    one = built.interpret("all:1")
    for mesh_shape, layout in LAYOUTS:
        many = built.interpret(mesh_shape, layout)
        for name, value in one.results.items():
            assert_close(many.results[name], value, terms=TERMS, what=f"{name} under {layout}")


FEEDS_BY_SHAPE = {"x": (mtf.Shape([BATCH, D_MODEL]), FEEDS["x"]), "scales": (mtf.Shape([LAYERS]), FEEDS["scales"])}


def test_stacks_nest() -> None:
    blocks, inner = mtf.Dimension("blocks", 2), mtf.Dimension("layers", 3)

    def step(unroll_blocks: bool, unroll_layers: bool):  # noqa: ANN202
        def block(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            carried, _ = mtf.layer_stack(layer, carried, inner, unroll=unroll_layers)
            return [mtf.layers.dense(carried[0], [D_MODEL], name="mix")], []

        def program(x: mtf.Tensor) -> mtf.Tensor:
            return mtf.layer_stack(block, x, blocks, unroll=unroll_blocks, name="block")[0][0]

        return BuiltProgram(program, {"x": ([BATCH, D_MODEL], FEEDS["x"])})

    made = {(b, n): step(b, n) for b in (True, False) for n in (True, False)}
    outcomes = {key: each.interpret("rows:1").results for key, each in made.items()}
    for key, value in outcomes.items():
        assert_close(value, outcomes[True, True], terms=TERMS, what=str(key))
    kernel = made[False, False].graph.variables["block/layer/dense/kernel"]
    assert isinstance(kernel, mtf.Variable)
    assert kernel.shape == mtf.Shape([blocks, inner, D_MODEL, D_FF])
    assert kernel.saved_names[:4] == (
        "block_000/layer_000/dense/kernel",
        "block_000/layer_001/dense/kernel",
        "block_000/layer_002/dense/kernel",
        "block_001/layer_000/dense/kernel",
    )
    assert "block_001/layer_002/dense/kernel" in made[True, True].graph.variables


def test_a_scan_grows_by_nothing_with_its_layers() -> None:
    def operations(num_layers: int) -> int:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph)
        with graph:
            mtf.layer_stack(layer, mtf.zeros(mesh, [BATCH, D_MODEL]), mtf.Dimension("layers", num_layers))
        return sum(1 for _ in graph.every_operation())

    assert operations(2) == operations(200)


def test_a_layer_may_return_its_dimensions_in_another_order() -> None:
    def turned(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        ys, results = layer(carried, parts)
        return [mtf.transpose(y, [D_MODEL, BATCH]) for y in ys], results

    def last(unroll: bool) -> np.ndarray:
        def built(x: mtf.Tensor) -> mtf.Tensor:
            return mtf.layer_stack(turned, x, LAYERS, unroll=unroll)[0][0]

        return interpret(built, {"x": ([BATCH, D_MODEL], FEEDS["x"])}, "rows:2", "batch:rows").results

    assert last(unroll=True).shape == (4, 6)
    assert_close(last(unroll=True), last(unroll=False), terms=TERMS)


@pytest.mark.parametrize("unroll", [False, True])
def test_a_layer_that_returns_nothing_is_told(unroll: bool) -> None:
    with mtf.Graph() as graph:
        x = mtf.zeros(mtf.Mesh(graph), [BATCH, D_MODEL])
        with pytest.raises(ShapeError, match=r"must return \(carried, results\), two lists"):
            mtf.layer_stack(lambda carried, parts: None, x, LAYERS, unroll=unroll)  # type: ignore[arg-type,return-value]


def test_what_a_stack_refuses() -> None:
    def built(fn, **options):  # noqa: ANN001, ANN003, ANN202
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph)
        with graph:
            mtf.layer_stack(fn, mtf.zeros(mesh, [BATCH, D_MODEL]), LAYERS, **options)

    def assigns(carried, parts):  # noqa: ANN001, ANN202
        (x,) = carried
        count = mtf.get_variable(x.mesh, "count", [], initializer=mtf.zeros)
        mtf.assign(count, count + 1.0)
        return [x], []

    with pytest.raises(GraphError, match=re.escape("give mtf.layer_stack unroll=True")):
        built(assigns)
    built(assigns, unroll=True)
    calls = []

    def fickle(carried, parts):  # noqa: ANN001, ANN202
        calls.append(None)
        mtf.get_variable(carried[0].mesh, f"w{len(calls)}", [D_MODEL])
        return carried, []

    with pytest.raises(GraphError, match=r'makes variable "layer/w2" that it did not make in the rehearsal'):
        built(fickle)

    def grows(carried, parts):  # noqa: ANN001, ANN202
        return [mtf.layers.dense(carried[0], [D_FF])], []

    for unroll in (True, False):
        with pytest.raises(ShapeError, match=r"changes the shape of a carried value"):
            built(grows, unroll=unroll)


def test_a_padded_variable_shows_its_own_size() -> None:
    vocab, padded = mtf.Dimension("vocab", 5), mtf.Dimension("vocab", 8)

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        table = mtf.get_variable(mesh, "table", [padded, D_MODEL], unpadded_shape=[vocab, D_MODEL])
        return mtf.reduce_sum(mtf.square(table), reduced_dim=D_MODEL)

    def plain(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "table", [vocab, D_MODEL])

    step = mtf.function(program, mtf.SpmdMeshImpl("rows:4", "vocab:rows"))
    norms = np.asarray(step())
    whole = np.asarray(mtf.function(plain, mtf.SpmdMeshImpl("rows:1", ""))())
    assert step.variables["table"].shape == (5, 6)
    np.testing.assert_array_equal(step.variables["table"], whole)
    assert_close(norms[:5], np.sum(whole**2, axis=1), terms=6)
    np.testing.assert_array_equal(norms[5:], 0.0)
    step.variables["table"] = np.ones([5, 6])
    np.testing.assert_array_equal(step(), [6, 6, 6, 6, 6, 0, 0, 0])
    with pytest.raises(ShapeError, match=r"is \[vocab:5 d_model:6\]; an array of shape \(8, 6\) does not fit"):
        step.variables["table"] = np.ones([8, 6])
    with pytest.raises(ShapeError, match=r"must have the names of shape \[vocab:5\], in order, and no larger sizes"):
        mtf.get_variable(mtf.Mesh(mtf.Graph()), "v", [vocab], unpadded_shape=[padded])


def test_state_like_a_variable_is_padded_and_stacked_as_it_is() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        mtf.layer_stack(layer, mtf.zeros(mesh, [BATCH, D_MODEL]), LAYERS)
        kernel = graph.variables["layer/dense/kernel"]
        assert isinstance(kernel, mtf.Variable)
        rows = mtf.like_variable(kernel, "rows", [LAYERS, D_MODEL]).operation
        assert isinstance(rows, mtf.Variable)
    assert (rows.full_name, rows.trainable) == ("layer/dense/kernel/rows", False)
    assert rows.stacked_dims == mtf.Shape([LAYERS])
    assert rows.saved_names[1] == "layer_001/dense/kernel/rows"
    assert rows.dtype.slice_dtype == tf.float32
