"""shift, roll and reverse against NumPy and TensorFlow, and what they send; on devices halos and dynamic shifts too."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest
from tests.ops.windows.moved_along import moved

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 12, 2))
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols"]
OFFSETS = [1, -1, 3, -5, 4, 11, -13, 30]


@pytest.mark.parametrize(
    ("offset", "wrap"),
    sharpest(itertools.product(OFFSETS, [True, False]), [(offset, n % 2 == 0) for n, offset in enumerate(OFFSETS)]),
)
def test_shift_and_its_gradients(agrees: Any, offset: int, wrap: bool) -> None:
    agrees(
        lambda x: mtf.shift(x, offset, "b", wrap),
        lambda x: moved(x, offset, 1, wrap),
        {"x": ("a:4 b:12 c:2", X)},
        LAYOUTS,
    )


@pytest.mark.parametrize("layout", ["", "b:rows"])
def test_what_leaves_has_no_gradient(layout: str) -> None:
    """The results whose place it would wrap to are zeros, so that the sum of their squares would not show it."""
    inputs = {"x": ("b:4", np.ones(4))}
    done = interpret(lambda x: mtf.gradients(mtf.shift(x, 1, "b", wrap=False), [x]), inputs, "rows:2", layout)
    np.testing.assert_array_equal(done.results[0], [1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize("offset", [2, -7])
def test_shift_on_many_meshes(agrees_on_many_meshes: Any, offset: int) -> None:
    x = RNG.standard_normal((12, 24))
    agrees_on_many_meshes(
        lambda x: [mtf.roll(x, offset, "b"), mtf.shift(x, offset, "a", wrap=False), mtf.reverse(x, "b")],
        lambda x: [tf.roll(x, offset, 1), moved(x, offset, 0, False), tf.reverse(x, [1])],
        {"x": ("a:12 b:24", x)},
    )


@pytest.mark.parametrize("dtype", [tf.bool, tf.int32, tf.bfloat16, tf.complex64])
def test_any_dtype_moves(dtype: tf.DType) -> None:
    x = tf.cast(RNG.integers(0, 2, 12), dtype).numpy()
    for offset in (1, -4):
        done = interpret(lambda x, n=offset: [mtf.shift(x, n, "b", False), mtf.roll(x, n, "b"), mtf.reverse(x, "b")],
                         {"x": ("b:12", x)}, "rows:2;cols:2", "b:rows+cols")  # fmt: skip
        expected = np.zeros_like(x)
        expected[max(0, offset) : 12 + min(0, offset)] = x[max(0, -offset) : 12 - max(0, offset)]
        for found, wanted in zip(done.results, (expected, np.roll(x, offset), x[::-1]), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_reverse_and_its_gradients(agrees: Any) -> None:
    agrees(lambda x: mtf.reverse(x, "b"), lambda x: tf.reverse(x, [1]), {"x": ("a:4 b:12 c:2", X)}, LAYOUTS)


def test_linear_operations_leave_sums_to_their_consumers() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        y = mtf.einsum([x, w], output_shape="b:12 c:2")
        return mtf.reverse(mtf.shift(y, 1, "b", False), "b") + mtf.roll(y, 2, "b")

    inputs = {"x": ("a:4 b:12", RNG.standard_normal((4, 12))), "w": ("a:4 c:2", RNG.standard_normal((4, 2)))}
    whole = interpret(program, inputs, "rows:1;cols:1").results
    done = interpret(program, inputs, "rows:2;cols:2", "a:rows;b:cols")
    assert_close(done.results, whole, terms=(4, 1))
    assert [c.step.kind for c in done.plan.collectives].count("all_reduce") == 1


MESH = "rows:2;cols:4"


def most_lacking(needed: Callable[[int], int], n: int, slice_size: int) -> int:
    """Elements, at most, that a core needs for its slice of the result and does not hold; outside: below 0."""
    lacking = []
    for core in range(n // slice_size):
        own = range(core * slice_size, (core + 1) * slice_size)
        lacking.append(len({needed(i) for i in own} - set(own) - {-1}))
    return max(lacking)


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("offset", [1, -1, 3, -4, 4, -9, 13, 47, -47])
def test_a_shift_sends_what_is_lacking_and_no_more(offset: int, wrap: bool) -> None:
    n, others = 48, 5
    planned = plan(lambda x: mtf.shift(x, offset, "b", wrap), {"x": mtf.TensorSpec("a:5 b:48", tf.float32)}, MESH,
                   "b:rows+cols")  # fmt: skip
    lacking = most_lacking(lambda i: (i - offset) % n if wrap else i - offset if 0 <= i - offset < n else -1, n, 6)
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
    assert sent == lacking * others * 4


@pytest.mark.parametrize("offset", [2, -2])
def test_between_two_cores_a_slice_that_moves_whole_is_permuted(offset: int) -> None:
    """A gather would send as much, and nobody needs two slices."""
    specs = {"x": mtf.TensorSpec("b:4 a:8", tf.float32)}
    planned = plan(lambda x: mtf.shift(x, offset, "b", False), specs, "stages:2", "b:stages")
    assert [(c.step.kind, c.input.slice_bytes) for c in planned.collectives] == [("permute", 64)]


def test_of_sizes_that_do_not_divide_borders_are_sent() -> None:
    specs = {"x": mtf.TensorSpec("blocks:10 block:6")}
    for fn, sent in (
        (lambda x: mtf.shift(x, -1, "blocks", False), [6 * 4]),
        (lambda x: mtf.halo_exchange(x, "blocks", "block", 2), [2 * 4] * 2),
    ):
        planned = plan(fn, specs, "rows:4", "blocks:rows")
        assert [(c.step.kind, c.input.slice_bytes) for c in planned.collectives] == [("permute", n) for n in sent]


def test_reverse_moves_each_slice_once() -> None:
    planned = plan(lambda x: mtf.reverse(x, "b"), {"x": mtf.TensorSpec("b:48", tf.float32)}, MESH, "b:rows+cols")
    assert [(c.step.kind, c.input.slice_bytes) for c in planned.collectives] == [("permute", 24)]


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        return [mtf.square(y) for y in (
            mtf.shift(x, 3, "b", False), mtf.roll(x, -1, "b"), mtf.reverse(x, "b"),
            mtf.halo_exchange(mtf.reshape(x, "a:4 blocks:4 block:4"), "blocks", "block", 5),
            mtf.dynamic_shift(x, mtf.range(x.mesh, ("a", 4)) * 7, "b", False),
        )]  # fmt: skip

    inputs = {"x": ("a:4 b:16", RNG.standard_normal((4, 16)))}
    assert_layout_invariant(program, inputs, ["b:cols+rows;blocks:rows+cols"])


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "blocks:4 block:8")
    for ours in (lambda d: mtf.shift(x, 1, d, True), lambda d: mtf.roll(x, 1, d), lambda d: mtf.reverse(x, d)):
        with pytest.raises(ShapeError, match=r'no dimension "blok" .*; did you mean "block'):
            ours("blok")
    with pytest.raises(ShapeError, match=r"offset must be a whole number known now, not 1.5"):
        mtf.shift(x, 1.5, "block", True)
    with pytest.raises(ShapeError, match=r"wrap must be True or False, not 3"):
        mtf.shift(x, 1, "block", 3)
