"""What "costly" keeps: of what elementwise operations are of, the least."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import meshtf as mtf
from meshtf.planning.plan import Loop

pytestmark = pytest.mark.quick

LAYERS, BATCH, WIDTH = mtf.Dimension("layers", 3), mtf.Dimension("batch", 4), mtf.Dimension("width", 8)
WIDER = mtf.Dimension("wider", 16)

Body = Callable[[mtf.Tensor, mtf.Tensor], mtf.Tensor]


def kept(body: Body) -> list[str]:
    """What the gradient of a scan keeps, beside the weights that are there."""

    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        (y,), _ = mtf.scan(lambda c, p: ([body(c[0], p[0])], []), x, w, LAYERS, recompute="costly")
        return mtf.gradients([mtf.reduce_sum(y)], [x, w])

    inputs = {"x": mtf.TensorSpec([BATCH, WIDTH]), "w": mtf.TensorSpec([LAYERS, WIDTH, WIDER])}
    plan = mtf.testing.plan(program, inputs, "rows:2", "batch:rows")
    forward, _ = (i for i in plan.instructions if isinstance(i, Loop))
    return sorted(f"{s.part.shape} {s.part.dtype.name}" for s in forward.stacked)


def wide(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([x, w], output_shape=[BATCH, WIDER])


def narrow(h: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.einsum([h, w], output_shape=[BATCH, WIDTH])


def normed(x: mtf.Tensor) -> mtf.Tensor:
    return x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), output_shape=[BATCH]) + 1e-6)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # What enters, and what the activation is of: not the seven tensors that it is made of.
        (lambda x, w: x + narrow(mtf.gelu(wide(x, w)), w), ["batch:4 wider:16 float32", "batch:4 width:8 float32"]),
        # The norm's means are small, and a reduction is not done again.
        (
            lambda x, w: narrow(mtf.tanh(wide(normed(x), w)), w),
            ["batch:4 float32", "batch:4 wider:16 float32", "batch:4 width:8 float32"],
        ),
        # What is dropped is drawn once: a byte for each element.
        (
            lambda x, w: narrow(mtf.dropout(wide(x, w), True, rate=0.5), w),
            ["batch:4 wider:16 bool", "batch:4 wider:16 float32", "batch:4 width:8 float32"],
        ),
        # The narrower of the two, where one is a cast of the other.
        (
            lambda x, w: mtf.cast(mtf.sin(mtf.cast(mtf.cast(narrow(wide(x, w), w), "bfloat16"), "float32")), "float32"),
            ["batch:4 width:8 bfloat16", "batch:4 width:8 float32", "batch:4 wider:16 float32"],
        ),
    ],
)
def test_elementwise_work_is_done_again(body: Body, expected: list[str]) -> None:
    assert kept(body) == sorted(expected)
