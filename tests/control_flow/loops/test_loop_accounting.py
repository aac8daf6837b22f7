"""What loops cost: collectives counted, weights updated, memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

LAYERS, BATCH, D, HIDDEN = (
    mtf.Dimension(name, size) for name, size in (("layers", 3), ("batch", 8), ("d", 32), ("hidden", 192))
)
RNG = np.random.default_rng(6)
X = RNG.normal(size=(8, 32)).astype(np.float32)
W1 = (RNG.normal(size=(3, 32, 192)) / 6).astype(np.float32)
W2 = (RNG.normal(size=(3, 192, 32)) / 14).astype(np.float32)
TERMS = (2 * LAYERS.size * (D.size + HIDDEN.size + FUNCTION_TERMS), BATCH.size, 4 * FUNCTION_TERMS)
"""Roundings of one step: through the layers and back, a sum over the batch, and the update of each element."""


def training(is_scan: bool, recompute: Any = None) -> Callable[..., Any]:
    """A residual perceptron of which the stacked weights are updated; and one weight that every layer shares."""

    def step(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
        w1 = mtf.get_variable(mesh, "w1", [LAYERS, D, HIDDEN], initializer=W1)
        w2 = mtf.get_variable(mesh, "w2", [LAYERS, HIDDEN, D], initializer=W2)
        shared = mtf.get_variable(mesh, "shared", [D], initializer=np.ones(32))

        def layer(y: mtf.Tensor, a: mtf.Tensor, b: mtf.Tensor) -> mtf.Tensor:
            h = mtf.tanh(mtf.einsum([y * shared, a], reduced_dims=[D]))
            return y + mtf.einsum([h, b], output_shape=y.shape)

        y = x
        if is_scan:
            (y,), _ = mtf.scan(lambda c, p: ([layer(c[0], *p)], []), x, [w1, w2], LAYERS, recompute=recompute)
        else:
            for a, b in zip(mtf.unstack(w1, LAYERS), mtf.unstack(w2, LAYERS), strict=True):
                y = layer(y, a, b)
        loss = mtf.reduce_mean(mtf.square(y - 1.0))
        mtf.optimize.AdamWOptimizer(0.01, epsilon=1e-3).minimize(loss)
        return loss

    return step


FORMS: list[tuple[bool, Any]] = [(False, None), (True, True), (True, None)]
"""Whether it is a scan, and what is computed again."""


@pytest.mark.parametrize(
    ("layout", "forms"),
    [
        ("batch:rows+cols", FORMS[:2]),
        *(
            pytest.param(layout, FORMS, marks=pytest.mark.long)
            for layout in ("batch:rows+cols", "batch:rows;hidden:cols", "d:rows;batch:cols")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_five_steps_of_an_optimizer(layout: str, forms: list[tuple[bool, Any]]) -> None:
    """The updates of weights are shared among cores that would repeat them (the slots are then kept in shares)."""
    losses: list[list[float]] = []
    weights = []
    for is_scan, recompute in forms:
        impl = mtf.SpmdMeshImpl("rows:2;cols:2", layout)
        step = mtf.function(training(is_scan, recompute), impl, inputs={"x": mtf.TensorSpec([BATCH, D])}, name="step")
        losses.append([float(step(x=X)) for _ in range(5)])
        weights.append([step.variables[name] for name in ("w1", "w2", "shared")])
        if is_scan and layout == "batch:rows+cols":
            report = step.report()
            asked = [member for c in report.collectives for member in c.members or (c,)]
            scatters = [c for c in asked if c.kind == "reduce_scatter"]
            assert {c.shape for c in scatters} == {"layers:3 d:32 hidden:192", "layers:3 hidden:192 d:32"}
            assert all(c.times == 1 for c in scatters)
    assert losses[0][-1] < losses[0][0]
    for own in losses[1:]:
        assert_close(own, losses[0], terms=TERMS, steps=np.arange(5), dtype="float32")
    for values in weights[1:]:
        for found, wanted in zip(values, weights[0], strict=True):
            assert_close(found, wanted, terms=TERMS, steps=5)


def test_data_parallel_training_sends_each_gradient_once(count_collectives: Any) -> None:
    """One collective for a stack's gradients whatever its length, and none inside the loops."""
    done = interpret(training(True), {"x": ("batch:8 d:32", X)}, "rows:4", "batch:rows")
    assert count_collectives(done.plan)["all_reduce"] <= 4
    assert max(done.plan.instructions, key=lambda i: len(getattr(i, "body", ()))).body
    inside = [c for loop in done.plan.instructions for c in getattr(loop, "body", ()) if hasattr(c, "step")]
    assert not inside


def test_model_parallel_layers_count_every_iteration() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        body = lambda c, p: ([mtf.tanh(mtf.einsum([c[0], p[0]], output_shape=[BATCH, D]))], [])  # noqa: E731
        return mtf.scan(body, x, w, LAYERS)[0][0]

    specs = {"x": mtf.TensorSpec([BATCH, D]), "w": mtf.TensorSpec([LAYERS, HIDDEN, BATCH, D])}
    report = mtf.function(program, mtf.SpmdMeshImpl("rows:2", "hidden:rows"), inputs=specs).report()
    (collective,) = report.collectives
    assert (collective.kind, collective.times, collective.bytes_sent) == ("all_reduce", 3, 3 * 8 * 32 * 4)
    assert report.flops_per_core >= 3 * 8 * 32 * 96


def test_accumulated_sums_of_integers_and_of_captured_tensors() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        n = mtf.zeros(mesh, [], tf.int32)
        return mtf.while_loop(
            lambda n: mtf.less(n, 4), lambda n: [n + 1, n, x, mtf.reduce_sum(x, output_shape=[D])], n,
            has_accumulators=True, maximum_iterations=4,
        )  # fmt: skip

    for layout in ("", "batch:rows", "d:rows+cols;batch:one"):
        n, numbers, xs, sums = interpret(program, {"x": ("batch:8 d:32", X)}, "rows:2;cols:2;one:1", layout).results
        assert (n, numbers) == (4, 6)
        assert_close(xs, 4 * X, terms=4)
        assert_close(sums, 4 * X.sum(0), terms=(8, 4))
