"""dynamic_shift against TensorFlow, one offset after the other, and what it sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan
from tests.house.layouts_of_run import layouts_of_run
from tests.ops.windows.moved_along import moved

RNG = np.random.default_rng(0)
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols", "a:rows+cols", "c:cols;a:rows"]


@pytest.mark.parametrize("wrap", [True, False])
def test_dynamic_shift_and_its_gradients(agrees: Any, wrap: bool) -> None:
    where = RNG.integers(-15, 15, 4)

    def reference(x: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
        return tf.stack([moved(x[i], int(n), 0, wrap) for i, n in enumerate(where)])

    agrees(
        lambda x, offset: mtf.dynamic_shift(x, offset, "b", wrap),
        reference,
        {"x": ("a:4 b:12 c:2", RNG.standard_normal((4, 12, 2))), "offset": ("a:4", where)},
        LAYOUTS,
    )


@pytest.mark.parametrize("wrap", [True, False])
@pytest.mark.parametrize("mesh", ["rows:2;cols:4", "rows:2;cols:3", "rows:1;cols:7"])
def test_dynamic_shift_on_many_cores(wrap: bool, mesh: str, request: pytest.FixtureRequest) -> None:
    """Where slices go round: by offsets of all sizes, over cores that are no power of two as well."""
    size = 56 if "4" in mesh else 42
    x, where = RNG.standard_normal((120, size)), np.arange(-60, 60)
    inputs = {"x": (f"a:120 b:{size}", x), "offset": ("a:120", where.astype(np.int64))}
    expected = np.stack([moved(tf.constant(row), int(n), 0, wrap) for row, n in zip(x, where, strict=True)])

    def program(x: mtf.Tensor, offset: mtf.Tensor) -> list[Any]:
        y = mtf.dynamic_shift(x, offset, "b", wrap)
        return [y, *mtf.gradients(y, [x], [mtf.sin(x)])]

    weights = np.stack([moved(tf.constant(np.sin(row)), -int(n), 0, wrap) for row, n in zip(x, where, strict=True)])
    for layout in layouts_of_run(["b:cols;a:rows", "b:rows+cols", "a:cols;b:rows", "b:cols+rows"], request.config):
        found, slope = interpret(program, inputs, mesh, layout).results
        np.testing.assert_array_equal(found, expected)
        assert_close(slope, weights, terms=FUNCTION_TERMS)


@pytest.mark.parametrize(("cores", "slices"), [(2, 1), (4, 3), (6, 4), (8, 4), (16, 5), (64, 7)])
def test_a_dynamic_shift_sends_as_few_slices_as_digits(cores: int, slices: int) -> None:
    specs = {"x": mtf.TensorSpec(f"b:{cores * 3} c:5"), "offset": mtf.TensorSpec([], tf.int32)}
    planned = plan(lambda x, offset: mtf.dynamic_shift(x, offset, "b", True), specs, f"all:{cores}", "b:all")
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
    assert sent == slices * 3 * 5 * 4
    assert slices == min(cores - 1, int(np.ceil(np.log2(cores))) + 1)


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, whole = mtf.placeholder(mesh, "blocks:4 block:8"), mtf.placeholder(mesh, "blocks:4", tf.int32)
    with pytest.raises(ShapeError, match=r'the offset .* has dimension "blocks", along which it moves'):
        mtf.dynamic_shift(x, whole, "blocks", True)
    with pytest.raises(DtypeError, match=r"the offset must be int32 or int64, not float32"):
        mtf.dynamic_shift(x, mtf.to_float(whole), "block", True)
