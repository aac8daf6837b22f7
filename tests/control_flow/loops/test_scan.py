"""scan over a dimension against the unrolled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret
from tests.lowering.emitted import core_functions, nodes_in, times_traced

LAYERS = mtf.Dimension("layers", 4)
BATCH, D, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
RNG = np.random.default_rng(0)
STACKED: dict[str, Any] = {
    "x": ("batch:4 d:4", RNG.normal(size=(4, 4))),
    "w1": ("layers:4 d:4 hidden:8", RNG.normal(size=(4, 4, 8)) / 2),
    "w2": ("hidden:8 layers:4 d:4", RNG.normal(size=(8, 4, 4)) / 2),
    "scale": ("d:4", RNG.normal(size=4)),
}
LAYOUTS = [
    "batch:rows;hidden:cols", "hidden:rows+cols", "batch:cols+rows", "d:cols;batch:rows", "layers:rows",
    "layers:rows+cols", "d:rows+cols", "layers:cols;hidden:rows",
]  # fmt: skip


def layer(x: mtf.Tensor, w1: mtf.Tensor, w2: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
    h = mtf.tanh(mtf.einsum([x, w1], reduced_dims=[D]))
    return x * scale + mtf.einsum([h, w2], output_shape=x.shape)


def scanned(recompute: Any = None, reverse: bool = False) -> Callable[..., Any]:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w1: mtf.Tensor, w2: mtf.Tensor, scale: mtf.Tensor) -> Any:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            y = layer(carried[0], *parts, scale)
            return [y], [mtf.reduce_sum(y, reduced_dim=D), mtf.sin(y)]

        return mtf.scan(body, x, [w1, w2], LAYERS, reverse=reverse, recompute=recompute)

    return program


def unrolled(reverse: bool = False) -> Callable[..., Any]:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w1: mtf.Tensor, w2: mtf.Tensor, scale: mtf.Tensor) -> Any:
        sums, sines = [], []
        pairs = list(zip(mtf.unstack(w1, LAYERS), mtf.unstack(w2, LAYERS), strict=True))
        for a, b in reversed(pairs) if reverse else pairs:
            x = layer(x, a, b, scale)
            sums.append(mtf.reduce_sum(x, reduced_dim=D))
            sines.append(mtf.sin(x))
        turn = -1 if reverse else 1
        return [x], [mtf.stack(sums[::turn], "layers"), mtf.stack(sines[::turn], "layers")]

    return program


def test_values_and_gradients_to_second_order(twins: Any) -> None:
    twins(scanned(), unrolled(), STACKED, LAYOUTS)


@pytest.mark.parametrize(
    "recompute",
    [
        "nested",
        mtf.RecomputePolicy("nothing", names=("tanh",)),
        *(pytest.param(x, marks=pytest.mark.long) for x in (True, "products")),
    ],
)
def test_recomputation_changes_nothing(twins: Any, recompute: Any) -> None:
    twins(scanned(recompute), unrolled(), STACKED, ["batch:rows;hidden:cols", "layers:rows"])


def test_reversed(twins: Any) -> None:
    for recompute in (None, "nested"):
        twins(scanned(recompute, reverse=True), unrolled(reverse=True), STACKED, ["batch:rows;hidden:cols"], order=1)


def test_three_axes(twins: Any) -> None:
    layouts = ["batch:a+c;hidden:b", "layers:c;d:a+b"]
    twins(scanned(), unrolled(), STACKED, layouts, mesh="a:2;b:2;c:2", order=1)


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w1: mtf.Tensor, w2: mtf.Tensor, scale: mtf.Tensor, mesh: mtf.Mesh) -> Any:
        return scanned()(mesh, x, w1, w2, scale)

    inputs = {name: (shape, array.astype(np.float32)) for name, (shape, array) in STACKED.items()}
    assert_layout_invariant(program, inputs, ["layers:cols;d:rows"])


def test_layouts_overridden_inside(twins: Any) -> None:
    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        y = mtf.with_layout(mtf.tanh(carried[0] * parts[0]), "d:rows")
        return [y], [mtf.replicate(y * 2.0), y]

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.scan(body, x, w, LAYERS)

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        ys = []
        for part in mtf.unstack(w, LAYERS):
            x = mtf.tanh(x * part)
            ys.append(x)
        return [x], [mtf.stack([y * 2.0 for y in ys], "layers"), mtf.stack(ys, "layers")]

    inputs = {"x": STACKED["x"], "w": ("layers:4 d:4", RNG.normal(size=(4, 4)))}
    twins(program, plain, inputs, ["batch:cols", "d:cols;layers:rows", "batch:rows"])


def test_an_overridden_initial_value_keeps_its_layout(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        return mtf.scan(lambda c, p: ([mtf.sin(c[0]) + p[0]], []), mtf.with_layout(x, "d:cols"), x, BATCH)[0]

    def plain(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        y = x
        for part in mtf.unstack(x, BATCH):
            y = mtf.sin(y) + part
        return y

    twins(program, plain, {"x": STACKED["x"]}, ["batch:rows", "d:rows"])


def test_nothing_carried_nothing_sliced_and_integers(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, n: mtf.Tensor) -> Any:
        _, (squares,) = mtf.scan(lambda c, p: ([], [mtf.square(p[0])]), [], x, BATCH)
        (power,), _ = mtf.scan(lambda c, p: ([c[0] * 1.5], []), x, [], LAYERS)
        (total, seen), (sums,) = mtf.scan(
            lambda c, p: ([c[0] + p[0], mtf.logical_or(c[1], mtf.greater(p[0], 2))], [c[0]]),
            [mtf.zeros(mesh, [], tf.int32), mtf.constant(mesh, False, [], tf.bool)], n, LAYERS,
        )  # fmt: skip
        return squares, power, total, seen, sums

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, n: mtf.Tensor) -> Any:
        before = mtf.cumsum(n, LAYERS, exclusive=True)
        return mtf.square(x), x * 1.5**4, mtf.reduce_sum(n), mtf.reduce_any(mtf.greater(n, 2)), before

    inputs = {"x": STACKED["x"], "n": ("layers:4", np.array([1, 5, 2, 0], np.int32))}
    twins(program, plain, inputs, ["batch:rows;layers:cols", "d:rows+cols"])


def test_the_body_may_use_the_scanned_dimension_whole(twins: Any) -> None:
    """Attention over all positions, position by position: what is kept has the scanned dimension, too."""
    length = mtf.Dimension("length", 4)

    def attend(q: mtf.Tensor, keys: mtf.Tensor) -> mtf.Tensor:
        weights = mtf.softmax(mtf.einsum([q, keys], reduced_dims=[D]), length)
        return mtf.einsum([weights, keys], reduced_dims=[length])

    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        _, (ys,) = mtf.scan(lambda c, p: ([], [attend(p[0], x)]), [], x, length)
        return ys

    def plain(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        return mtf.stack([attend(q, x) for q in mtf.unstack(x, length)], "length")

    inputs = {"x": ("length:4 d:4", RNG.normal(size=(4, 4)))}
    twins(program, plain, inputs, ["length:rows", "d:cols", "length:rows+cols", "length:cols;d:rows"])


def test_scan_of_scan_and_one_result_twice(twins: Any) -> None:
    def inner(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.scan(lambda c, p: ([mtf.sin(c[0] * p[0])], [c[0]]), x, w, HIDDEN)

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            (y,), (ys,) = inner(carried[0], parts[0])
            return [y], [y, mtf.reduce_sum(ys, reduced_dim=HIDDEN), y]

        return mtf.scan(body, x, w, LAYERS)

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        ys, sums = [], []
        for own in mtf.unstack(w, LAYERS):
            total = mtf.zeros_like(x)
            for part in mtf.unstack(own, HIDDEN):
                total, x = total + x, mtf.sin(x * part)
            ys.append(x)
            sums.append(total)
        return [x], [mtf.stack(ys, "layers"), mtf.stack(sums, "layers"), mtf.stack(ys, "layers")]

    inputs = {"x": ("batch:4", RNG.normal(size=4)), "w": ("layers:4 hidden:8", RNG.normal(size=(4, 8)))}
    twins(program, plain, inputs, ["batch:rows;hidden:cols", "layers:cols;batch:rows"])


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_a_scan_along_nothing_hands_on_what_it_was_given(dtype: type) -> None:
    def program(c: mtf.Tensor, x: mtf.Tensor) -> list[mtf.Tensor | None]:
        (last,), (results,) = mtf.scan(lambda v, p: ([mtf.sin(v[0]) + p[0]], [p[0] * v[0]]), c, x, ("a", 0))
        grads = mtf.gradients([last, results], [c, x])
        return [last, results, *grads, *mtf.gradients(grads, [c, x])]

    inputs = {"c": ("b:4", np.ones(4, dtype)), "x": ("a:0 b:4", np.ones([0, 4], dtype))}
    found = interpret(program, inputs, "rows:2", "b:rows").results
    assert [(x.shape, x.dtype) for x in found] == [((4,), dtype), ((0, 4), dtype)] * 3
    np.testing.assert_array_equal(found[0], np.ones(4))
    np.testing.assert_array_equal(found[2], np.ones(4))


def test_unconnected_inputs_have_no_gradient() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, y: mtf.Tensor, z: mtf.Tensor) -> Any:
        (_, b), _ = mtf.scan(lambda c, p: ([c[0] * p[0], c[1] * 2.0], []), [x, y], z, LAYERS)
        return mtf.gradients([b], [x, y, z])

    inputs = {"x": ("d:4", np.ones(4)), "y": ("d:4", np.ones(4)), "z": ("layers:4", np.ones(4))}
    gx, gy, gz = interpret(program, inputs, "rows:2", "d:rows").results
    assert gx is None
    assert gz is None
    np.testing.assert_array_equal(gy, np.full(4, 16.0))


def test_random_bits_differ_by_iteration_and_not_by_layout() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            mask = mtf.dropout(mtf.ones_like(carried[0]), True, rate=0.5)
            return [carried[0] * mask + x], [mask]

        (y,), (masks,) = mtf.scan(body, x, [], LAYERS, recompute=recompute)
        return masks, y, mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])[0]

    inputs = {"x": ("batch:16 d:4", RNG.normal(size=(16, 4)))}
    expected = None
    for recompute in (None, True, "nested"):  # noqa: B007 - the program reads it
        for layout in ("", "batch:rows", "batch:cols+rows", "d:cols"):
            masks, y, grad = interpret(program, inputs, "rows:2;cols:2", layout).results
            expected = (masks, y, grad) if expected is None else expected
            np.testing.assert_array_equal(masks, expected[0])
            assert_close(y, expected[1], terms=2 * 4)
            assert_close(grad, expected[2], terms=4 * 4)
    assert expected is not None
    assert all((expected[0][i] != expected[0][j]).any() for i in range(4) for j in range(i))
    # The gradient used the masks that the values had.
    mask, y = expected[0], expected[1]
    slope, ys = np.ones_like(y), inputs["x"][1]
    for m in mask:
        slope = slope * m + 1
        ys = ys * m + inputs["x"][1]
    assert_close(ys, y, terms=2 * 4)
    assert_close(expected[2], 2 * y * slope, terms=4 * 4)


def test_random_bits_in_nested_loops_all_differ() -> None:
    def program(mesh: mtf.Mesh) -> Any:
        def draw(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            return carried, [mtf.random_uniform(mesh, [D], tf.float32)]

        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            return carried, mtf.scan(draw, carried, [], HIDDEN)[1]

        return mtf.scan(body, mtf.zeros(mesh, []), [], LAYERS)[1]

    (drawn,) = interpret(program, {}, "rows:2", "d:rows").results
    assert drawn.shape == (4, 8, 4)
    assert len(np.unique(drawn)) == drawn.size


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "shape": (
        lambda x: mtf.scan(lambda c, p: ([mtf.reduce_sum(c[0], reduced_dim=D)], []), x, x, BATCH),
        ShapeError, r"changes the shape of a carried value: \[batch:4 d:4\] becomes \[batch:4\]",
    ),
    "dtype": (
        lambda x: mtf.scan(lambda c, p: ([mtf.cast(c[0], tf.bfloat16)], []), x, x, BATCH),
        DtypeError, "float32 becomes bfloat16; convert with mtf.cast",
    ),
    "count": (
        lambda x: mtf.scan(lambda c, p: ([], []), x, x, BATCH),
        ShapeError, "is given 1 carried values and returned 0",
    ),
    "no pair": (lambda x: mtf.scan(lambda c, p: c, x, x, BATCH), ShapeError, r"must return \(carried, results\)"),
    "no tensor": (
        lambda x: mtf.scan(lambda c, p: (c, [1.0]), x, x, BATCH),
        GraphError, "must return mtf.Tensors, and returned float",
    ),
    "no such dimension": (
        lambda x: mtf.scan(lambda c, p: (c, []), x, x, LAYERS), ShapeError, r'no dimension "layers"',
    ),
    "result with the dimension": (
        lambda x: mtf.scan(lambda c, p: (c, [x]), x, x, BATCH), ShapeError, 'has dimension "batch" itself',
    ),
    "nothing": (lambda x: mtf.scan(lambda c, p: (c, []), [], [], BATCH), ShapeError, "at least one carried or sliced"),
    "policy": (
        lambda x: mtf.scan(
            lambda c, p: ([mtf.tanh(c[0])], []), x, x, BATCH, recompute=mtf.RecomputePolicy(names=("tanhh",))
        ),
        GraphError, r'keeps "tanhh", which is no operation of the block; did you mean "tanh"',
    ),
    "what a policy keeps": (
        lambda x: mtf.scan(lambda c, p: (c, []), x, x, BATCH, recompute="product"),
        GraphError, r'everything, nested, nothing, products, not "product"; did you mean "products"',
    ),
    "no policy": (
        lambda x: mtf.scan(lambda c, p: (c, []), x, x, BATCH, recompute=4),
        GraphError, r'recompute must be a policy, its name such as "costly", or a bool, and is 4',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, error, message = BAD[case]
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        with pytest.raises(error, match=message) as raised:
            call(x)
    assert "test_scan.py:" in str(raised.value)
    assert [o.name for o in mesh.graph.operations] == ["x"]


def test_a_tensor_that_leaves_its_loop_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    leaked: list[mtf.Tensor] = []

    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        leaked.extend([mtf.tanh(carried[0]), parts[0]])
        return carried, []

    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        mtf.scan(body, x, x, BATCH)
        for tensor in leaked:
            with pytest.raises(GraphError, match=r"is inside the body of mtf\.scan over batch:4, and is used outside"):
                mtf.sin(tensor)


def test_one_trace_of_the_body() -> None:
    """The emitted program does not grow with the number of layers, and is traced once for all cores."""

    def size(count: int) -> int:
        layers = mtf.Dimension("layers", count)

        def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
            (y,), _ = mtf.scan(
                lambda c, p: ([mtf.tanh(mtf.einsum([c[0], p[0]], output_shape=[BATCH, D]))], []),
                x, w, layers,
            )  # fmt: skip
            return mtf.gradients([mtf.reduce_sum(y)], [w])

        specs = {"x": mtf.TensorSpec([BATCH, D]), "w": mtf.TensorSpec([layers, BATCH, D])}
        step = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows"), inputs=specs)
        step(x=np.ones((4, 4), np.float32), w=np.ones((count, 4, 4), np.float32))
        assert times_traced(step._execution.program) == {1}
        return sum(len(nodes_in(function.graph)) for function in core_functions(step))

    assert size(7) == size(33)
