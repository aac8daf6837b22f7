"""Exactly what is sent, and nothing twice: the collectives of small programs, counted."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick

A, B, C, D = (mtf.Dimension(name, size) for name, size in (("a", 8), ("b", 12), ("c", 16), ("d", 4)))
AB, BC, AC = mtf.TensorSpec([A, B]), mtf.TensorSpec([B, C]), mtf.TensorSpec([A, C])


def planned(fn: Callable[..., Any], layout: str, mesh_shape: str = "rows:2;cols:4", **inputs: mtf.TensorSpec) -> Plan:
    return mtf.testing.plan(fn, inputs, mesh_shape, layout)


def counts(plan: Plan) -> dict[str, int]:
    return dict(collections.Counter(c.step.kind for c in plan.collectives))


def bytes_reduced(plan: Plan) -> int:
    return sum(c.input.slice_bytes for c in plan.collectives if c.step.kind == "all_reduce")


def product(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([x, w], output_shape=[A, C])


def test_two_products_summed_and_then_reduced() -> None:
    def fn(x: mtf.Tensor, w: mtf.Tensor, u: mtf.Tensor, v: mtf.Tensor) -> mtf.Tensor:
        return product(x, w) + product(u, v)

    assert counts(planned(fn, "b:rows", x=AB, w=BC, u=AB, v=BC)) == {"all_reduce": 1}


def test_a_sum_over_a_split_dimension_that_is_wanted_split() -> None:
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.rename_dimension(mtf.reduce_sum(x, output_shape=[B]), "b", "e")

    assert counts(planned(fn, "a:rows;e:rows", x=AB)) == {"reduce_scatter": 1}
    assert counts(planned(lambda x, w: product(x, w), "b:rows", x=AB, w=BC)) == {"all_reduce": 1}

    def scattered(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(product(x, w), "c:rows")

    assert counts(planned(scattered, "b:rows", x=AB, w=BC)) == {"reduce_scatter": 1}


@pytest.mark.parametrize("axis", ["rows", "cols", "rows+cols"])
def test_a_split_that_moves_to_another_dimension(axis: str) -> None:
    wide = mtf.TensorSpec("a:16 b:24")
    moved = planned(lambda x: mtf.with_layout(mtf.sin(x), f"b:{axis}"), f"a:{axis}", x=wide)
    assert counts(moved) == {"all_to_all": 1}

    def renamed(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reshape(mtf.sin(x), [("e", 16), ("f", 24)])

    assert counts(planned(renamed, f"a:{axis};f:{axis}", x=wide)) == {"all_to_all": 1}


def test_two_scalings_of_one_product_each_through_its_own_nonlinearity() -> None:
    def fn(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        y = product(x, w)
        return [mtf.tanh(2.0 * y), mtf.sigmoid(3.0 * y)]

    assert counts(planned(fn, "b:rows", x=AB, w=BC)) == {"all_reduce": 1}


# What is linear works on the terms of a sum; the sum is done once, at the end.
_PASSING: dict[str, Callable[[mtf.Tensor], mtf.Tensor]] = {
    "add": lambda y: y + y,
    "subtract": lambda y: y - 2.0 * y,
    "negative": lambda y: -y,
    "scalar multiply": lambda y: 0.5 * y,
    "scalar divide": lambda y: y / 3.0,
    "reshape": lambda y: mtf.reshape(y, [("e", 4), ("f", 32)]),
    "rename": lambda y: mtf.rename_dimension(y, "a", "e"),
    "transpose": lambda y: mtf.transpose(y, [C, A]),
    "stop_gradient": mtf.stop_gradient,
    "identity": mtf.identity,
    "sum over another dimension": lambda y: mtf.reduce_sum(y, reduced_dim=C),
    "mean over another dimension": lambda y: mtf.reduce_mean(y, reduced_dim=C),
    "depend": lambda y: mtf.depend(y, [y]),
}


@pytest.mark.parametrize("name", _PASSING)
def test_pending_sums_pass(name: str) -> None:
    def fn(x: mtf.Tensor, w: mtf.Tensor, u: mtf.Tensor, v: mtf.Tensor) -> mtf.Tensor:
        return mtf.tanh(_PASSING[name](product(x, w)) + _PASSING[name](product(u, v)))

    plan = planned(fn, "b:rows", x=AB, w=BC, u=AB, v=BC)
    assert counts(plan) == {"all_reduce": 1}
    (reduction,) = plan.collectives
    assert reduction.operation.name.startswith("add"), f"reduced at {reduction.operation}, not after the sum"


def test_a_sum_is_reduced_where_it_is_smallest() -> None:
    def fn(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.exp(mtf.reduce_sum(product(x, w), reduced_dim=C))

    assert bytes_reduced(planned(fn, "b:rows", x=AB, w=BC)) == A.size * 4

    def broadcast_after(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.exp(mtf.broadcast(product(x, w), [D, A, C]))

    assert bytes_reduced(planned(broadcast_after, "b:rows", x=AB, w=BC)) == A.size * C.size * 4


def test_identical_gathers_are_done_once() -> None:
    def fn(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.exp(mtf.replicate(x)), mtf.tanh(mtf.replicate(x)), mtf.replicate(x) * 2.0]

    assert counts(planned(fn, "a:rows", x=AB)) == {}  # what is fed is whole already

    def computed(x: mtf.Tensor) -> list[mtf.Tensor]:
        return fn(mtf.sin(x))

    assert counts(planned(computed, "a:rows", x=AB)) == {"all_gather": 1}


def test_what_nothing_needs_is_not_lowered() -> None:
    def fn(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        mtf.exp(product(x, w))
        return mtf.sin(x)

    plan = planned(fn, "b:rows", x=AB, w=BC)
    assert counts(plan) == {}
    assert {i.operation.name for i in plan.instructions} == {"x", "sin"}


BATCH, PIXELS, CLASSES = mtf.Dimension("batch", 16), mtf.Dimension("pixels", 24), mtf.Dimension("classes", 8)
HIDDEN = [mtf.Dimension("hidden_0", 32), mtf.Dimension("hidden_1", 40)]
WIDTHS = [PIXELS, *HIDDEN, CLASSES]
WEIGHTS = {f"w{i}": mtf.TensorSpec([WIDTHS[i], WIDTHS[i + 1]]) for i in range(3)}
PARAMETER_BYTES = sum(4 * spec.shape.size for spec in WEIGHTS.values())


def perceptron(images: mtf.Tensor, w0: mtf.Tensor, w1: mtf.Tensor, w2: mtf.Tensor) -> list[mtf.Tensor | None]:
    """The gradients of three layers' weights, by a loss that is a sum over the batch."""
    h = images
    for w in (w0, w1, w2):
        h = mtf.einsum([h, w], output_shape=[BATCH, w.shape[1]])
        h = h if w is w2 else mtf.relu(h)
    return mtf.gradients([mtf.reduce_sum(mtf.square(h))], [w0, w1, w2])


@pytest.mark.parametrize("axes", ["rows", "cols", "rows+cols"])
def test_data_parallel_reduces_the_parameters_bytes(axes: str) -> None:
    images = mtf.TensorSpec([BATCH, PIXELS])
    plan = planned(perceptron, f"batch:{axes}", images=images, **WEIGHTS)
    assert counts(plan) == {"all_reduce": 3}
    assert bytes_reduced(plan) == PARAMETER_BYTES


def test_model_parallel_reduces_exactly_the_activations_that_must_be() -> None:
    """Columns, then rows: the pixels' product is local, the next is a sum, and its gradient is back to it."""
    images = mtf.TensorSpec([BATCH, PIXELS])
    plan = planned(perceptron, "hidden_0:cols", images=images, **WEIGHTS)
    activations = 4 * BATCH.size * HIDDEN[1].size
    assert counts(plan) == {"all_reduce": 1}
    assert bytes_reduced(plan) == activations


def test_data_and_model_parallel_at_once() -> None:
    images = mtf.TensorSpec([BATCH, PIXELS])
    plan = planned(perceptron, "batch:rows;hidden_0:cols", images=images, **WEIGHTS)
    activations = 4 * BATCH.size * HIDDEN[1].size // 2
    slices = sum(4 * spec.shape.size // (4 if spec.shape.has("hidden_0") else 1) for spec in WEIGHTS.values())
    assert counts(plan) == {"all_reduce": 4}
    assert bytes_reduced(plan) == activations + slices


def test_every_gradient_has_its_primals_layout() -> None:
    images = mtf.TensorSpec([BATCH, PIXELS])
    plan = planned(perceptron, "batch:rows;hidden_0:cols", images=images, **WEIGHTS)
    texts = [value.layout.to_string(value.shape) for value in plan.fetches]
    assert texts == ["pixels:24 hidden_0:32/cols", "hidden_0:32/cols hidden_1:40", "hidden_1:40 classes:8"]


def test_a_model_of_600_billion_parameters_is_built_and_planned() -> None:
    """On names and sizes alone: no TensorFlow op, no memory."""
    batch, model, hidden = mtf.Dimension("batch", 4096), mtf.Dimension("model", 8192), mtf.Dimension("hidden", 589_824)

    def fn(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
        for layer in range(63):
            with mtf.variable_scope(f"layer_{layer:03}"):
                wi = mtf.get_variable(mesh, "wi", [model, hidden])
                wo = mtf.get_variable(mesh, "wo", [hidden, model])
                x = x + mtf.einsum([mtf.relu(mtf.einsum([x, wi], [batch, hidden])), wo], [batch, model])
        return mtf.reduce_mean(mtf.square(x))

    def step(mesh: mtf.Mesh, x: mtf.Tensor) -> list[mtf.Tensor | None]:
        loss = fn(mesh, x)
        return mtf.gradients([loss], [v.value for v in mesh.graph.trainable_variables])

    with tf.Graph().as_default() as graph:
        plan = planned(step, "batch:rows;hidden:cols", "rows:16;cols:128", x=mtf.TensorSpec([batch, model]))
        assert graph.get_operations() == []
    parameters = sum(math.prod(i.output.shape.to_integer_list) for i in plan.reads)
    assert parameters > 600e9
    assert max(i.output.slice_bytes for i in plan.reads) < 200e6
