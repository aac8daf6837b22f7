"""From one layout to another where sizes do not divide: what is sent, and that nothing is lost or mixed up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS

MESH = "rows:2;cols:4"
SPLITS = ["", "rows", "cols", "rows+cols", "cols+rows"]
X = np.arange(70, dtype=np.float32).reshape(10, 7)


def moved(before: str, after: str, *, pending: bool = False) -> mtf.testing.Interpretation:
    """x in one layout, then in another; a sum over `cols` may be pending."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.with_layout(x, before) + 1.0
        if pending:
            ones = mtf.ones(x.mesh, "terms:4")
            y = mtf.einsum([y, mtf.with_layout(ones, "terms:cols")], output_shape=x.shape)
        return mtf.with_layout(y, after)

    return mtf.testing.interpret(program, {"x": ("a:10 b:7", X)}, MESH, "", max_padding=1.0)


def layouts() -> list[str]:
    both = [(a, b) for a, b in itertools.product(SPLITS, SPLITS) if not set(a.split("+")) & set(b.split("+")) - {""}]
    return [";".join(f"{d}:{axes}" for d, axes in zip("ab", pair, strict=True) if axes) for pair in both]


@pytest.mark.parametrize("before", layouts())
def test_from_every_layout_to_every_other(before: str) -> None:
    for after in layouts():
        np.testing.assert_array_equal(moved(before, after).results, X + 1.0)


@pytest.mark.parametrize("after", layouts())
def test_with_a_sum_pending(after: str) -> None:
    np.testing.assert_array_equal(moved("a:rows", after, pending=True).results, 4.0 * (X + 1.0))


@pytest.mark.parametrize(
    ("before", "after", "sent"),
    [
        ("a:cols", "a:cols;b:rows", []),  # a slice of what is there
        ("a:cols", "b:cols", [("all_to_all", 3 * 8 * 4 * 3 // 4)]),
        ("a:cols", "", [("all_gather", 3 * 7 * 4 * 3)]),
        ("", "a:cols+rows", []),
    ],
)
def test_what_is_sent_is_what_the_padded_tensor_would_need(before: str, after: str, sent: list) -> None:
    plan = moved(before, after).plan
    found = [(c.step.kind, c.step.bytes_sent(c.input.slice_bytes, plan.mesh_shape)) for c in plan.collectives]
    assert found == sent


def test_a_sum_is_scattered_over_slices_that_are_padded() -> None:
    plan = moved("a:rows", "a:rows;b:cols", pending=True).plan
    assert [c.step.kind for c in plan.collectives] == ["reduce_scatter"]


def test_what_treats_a_batch_alike_sends_nothing_for_a_batch_that_does_not_divide() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        ids = mtf.argmax(x, "b")
        ys = [
            mtf.cumsum(x, "b"), mtf.shift(x, 1, "b", wrap=True), mtf.rename_dimension(x, "b", "c"), mtf.sort(x, "b"),
            mtf.concat([x, x], "b"), mtf.slice(x, 2, 3, "b"), mtf.one_hot(ids, mtf.Dimension("classes", 7)),
            mtf.gather(mtf.ones(x.mesh, "b:7 d:4"), ids, "b"), mtf.softmax(x, "b"), mtf.rename_dimension(x, "a", "e"),
            mtf.reshape(mtf.concat([x, x], "b"), "a:10 heads:2 d_kv:7"), mtf.top_k(x, "b", mtf.Dimension("k", 2))[0],
        ]  # fmt: skip
        return ys + mtf.gradients([mtf.reduce_sum(mtf.square(y)) for y in ys if y.dtype.is_floating], [x])

    layout, inputs = "a:cols;e:cols", {"x": ("a:10 b:7", X)}
    found = mtf.testing.interpret(program, inputs, MESH, layout)
    for actual, expected in zip(found.results, mtf.testing.interpret(program, inputs, "one:1").results, strict=True):
        mtf.testing.assert_close(actual, expected, terms=FUNCTION_TERMS + X.size)
    assert {c.step.kind for c in found.plan.collectives} <= {"all_reduce"}
    assert all(not c.input.shape.ndims for c in found.plan.collectives)
