"""custom_gradient: the user's gradient under every layout, to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.planning.plan import Compute
from meshtf.testing import assert_close, assert_layout_invariant, interpret

BATCH, D, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
RNG = np.random.default_rng(3)
INPUTS: dict[str, Any] = {
    "x": ("batch:4 d:4", RNG.normal(size=(4, 4))),
    "w": ("d:4 hidden:8", RNG.normal(size=(4, 8)) / 2),
}
LAYOUTS = ["batch:rows;hidden:cols", "d:rows;hidden:cols", "d:cols;batch:rows", "hidden:rows+cols"]


def forward(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.tanh(mtf.einsum([x, w], reduced_dims=[D]))


def by_hand(explicit: Any, every: Any, operations: Any, outputs: Any, grads: Any) -> list[mtf.Tensor | None]:
    """The gradient of `forward`, from its own result inside the block."""
    (x,), (_, w) = explicit, every
    (tanh,) = (o.outputs[0] for o in operations if o.name.startswith("tanh"))
    slope = grads[0] * (1.0 - mtf.square(tanh))
    return [mtf.einsum([slope, w], output_shape=x.shape), mtf.einsum([x, slope], output_shape=[HIDDEN, D])]


def test_a_gradient_from_what_is_inside(twins: Any) -> None:
    """It may come in another order of dimensions, and is differentiable in turn."""

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.custom_gradient(lambda x: forward(x, w), by_hand, x)

    twins(program, lambda mesh, x, w: forward(x, w), INPUTS, LAYOUTS)


def test_second_derivatives_by_way_of_what_is_inside(twins: Any) -> None:
    """Of a gradient that uses what the function makes on the way, and does not return."""

    def on_the_way(explicit: Any, every: Any, operations: Any, outputs: Any, grads: Any) -> list[mtf.Tensor | None]:
        assert len(outputs) == len(grads) == 1
        (x,), (_, w) = explicit, every
        (tanh,) = (o.outputs[0] for o in operations if o.name.startswith("tanh"))
        slope = 3.0 * grads[0] * mtf.square(tanh) * (1.0 - mtf.square(tanh))
        return [mtf.einsum([slope, w], output_shape=x.shape), mtf.einsum([x, slope], output_shape=w.shape)]

    def cubed(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        tanh = forward(x, w)
        return tanh * mtf.square(tanh)

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.custom_gradient(lambda x: cubed(x, w), on_the_way, x)

    twins(program, lambda mesh, x, w: cubed(x, w), INPUTS, LAYOUTS)


def test_a_gradient_that_computes_again(twins: Any) -> None:
    """It waits for the gradient that it is given, and has the same value."""

    def again(explicit: Any, every: Any, operations: Any, outputs: Any, grads: Any) -> list[mtf.Tensor | None]:
        (x,), (_, w) = explicit, every
        slope = grads[0] * (1.0 - mtf.square(forward(x, w)))
        return [mtf.einsum([slope, w], output_shape=x.shape), mtf.einsum([x, slope], output_shape=[HIDDEN, D])]

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.custom_gradient(lambda x: forward(x, w), again, x, computes_again=True)

    twins(program, lambda mesh, x, w: forward(x, w), INPUTS, LAYOUTS)


@pytest.mark.parametrize("computes_again", [False, True])
def test_what_is_computed_again_waits(computes_again: bool) -> None:
    """x, the argument, for the gradient of the result."""

    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        y = mtf.custom_gradient(lambda x: forward(x, w), by_hand_again, x, computes_again=computes_again)
        return mtf.gradients([mtf.reduce_sum(y)], [x, w])

    by_hand_again = lambda explicit, every, operations, outputs, grads: [  # noqa: E731
        mtf.einsum([grads[0], every[1]], output_shape=explicit[0].shape),
        mtf.einsum([explicit[0], grads[0]], output_shape=[HIDDEN, D]),
    ]
    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in INPUTS.items()}
    plan = mtf.testing.plan(program, specs, "rows:1", "")
    assert sum(i.facts.waits for i in plan.instructions if isinstance(i, Compute)) == computes_again


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.custom_gradient(lambda x: forward(x, w), by_hand, [x])

    inputs = {name: (shape, array.astype(np.float32)) for name, (shape, array) in INPUTS.items()}
    assert_layout_invariant(program, inputs, LAYOUTS[:1])


def test_several_results_variables_and_missing_gradients() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        v = mtf.get_variable(mesh, "v", [D], tf.float64, initializer=np.ones(4))

        def double(explicit: Any, every: Any, operations: Any, outputs: Any, grads: Any) -> list[mtf.Tensor | None]:
            assert every == [x, w, v]
            assert grads[1] is None
            return [grads[0] * 2.0, None, mtf.reduce_sum(grads[0] * outputs[0], output_shape=[D])]

        y, _ = mtf.custom_gradient(lambda x, w: [x * v, mtf.reduce_sum(w)], double, [x, w])
        return mtf.gradients([mtf.reduce_sum(y)], [x, w, v])

    for layout in ["", *LAYOUTS]:
        gx, gw, gv = interpret(program, INPUTS, "rows:2;cols:2", layout).results
        assert gw is None
        assert_close(gx, np.full((4, 4), 2.0), terms=2)
        assert_close(gv, INPUTS["x"][1].sum(0), terms=4)


@pytest.mark.parametrize("layout", ["", *LAYOUTS])
def test_an_argument_that_the_function_does_not_use_has_its_gradient(layout: str) -> None:
    """Such as a loss that is handed on beside a layer's result, and whose gradient is 1."""

    def beside(x: mtf.Tensor, loss: mtf.Tensor) -> mtf.Tensor:
        return mtf.custom_gradient(lambda x, _: x, lambda e, a, o, ys, gs: [gs[0], mtf.ones_like(e[1])], [x, loss])

    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        loss = mtf.reduce_sum(mtf.square(w))
        ys = [beside(x, loss), mtf.recompute_grad(lambda x: beside(x, loss), [x])]
        (y,), _ = mtf.scan(lambda carried, parts: ([beside(carried[0], loss)], []), x, x, BATCH)
        return [mtf.gradients([mtf.reduce_sum(y)], [x, w]) for y in (*ys, y)]

    x, w = (array for _, array in INPUTS.values())
    for (gx, gw), times in zip(interpret(program, INPUTS, "rows:2;cols:2", layout).results, (1, 1, 4), strict=True):
        np.testing.assert_array_equal(gx, np.ones_like(x))
        assert_close(gw, times * 2.0 * w, terms=4)


def test_in_a_scan(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            h = mtf.custom_gradient(lambda x: forward(x, w), by_hand, carried[0])
            return [mtf.einsum([h, w], output_shape=x.shape) + parts[0]], []

        return mtf.scan(body, x, x, BATCH, recompute=recompute)[0]

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        y = x
        for part in mtf.unstack(x, BATCH):
            y = mtf.einsum([forward(y, w), w], output_shape=x.shape) + part
        return y

    for recompute in (None, True):  # noqa: B007 - the program reads it
        twins(program, plain, INPUTS, LAYOUTS[:2])


def test_of_a_tensor_whose_layout_is_overridden(twins: Any) -> None:
    """The gradient's block is asked, for a second derivative, for what it used inside; it keeps its own layouts."""

    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        return mtf.custom_gradient(mtf.sin, lambda e, a, o, ys, gs: [gs[0] * mtf.cos(e[0])], mtf.with_layout(x, split))

    for split in ("batch:rows+cols", "batch:cols", ""):  # noqa: B007 - the program reads it
        twins(program, lambda mesh, x: mtf.sin(x), {"x": INPUTS["x"]}, ["batch:rows", "d:cols;batch:rows"])


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "count": (lambda g: [g, g], GraphError, r"grad_fn returned 2 gradients for 1 input: x \[batch:4 d:4\]"),
    "shape": (lambda g: mtf.reduce_sum(g), ShapeError, r"returned \[\] as the gradient of \[batch:4 d:4\]"),
    "dtype": (lambda g: mtf.cast(g, tf.bfloat16), DtypeError, "returned bfloat16 as the gradient of"),
    # Such as the function's own, if grad_fn calls it again: it would be another variable.
    "variable": (lambda g: g * mtf.get_variable(g.mesh, "w", [D]), GraphError, 'would make variable "gradients/w"'),
    "no tensor": (lambda g: 1.0, GraphError, "the gradient must be an mtf.Tensor, not float"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    returned, error, message = BAD[case]
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        y = mtf.custom_gradient(mtf.sin, lambda e, a, o, ys, gs: returned(gs[0]), x)
        with pytest.raises(error, match=message) as raised:
            mtf.gradients([mtf.reduce_sum(y)], [x])
    assert "test_custom_gradient.py:" in str(raised.value)


@pytest.mark.parametrize(
    "make", [lambda: mtf.custom_gradient(mtf.sin, mtf.sin, []), lambda: mtf.recompute_grad(mtf.sin, [])]
)
def test_no_inputs(make: Callable[[], Any]) -> None:
    with pytest.raises(GraphError, match="explicit_inputs is empty"):
        make()
