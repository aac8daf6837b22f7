"""The gradients of convolutions as functions, against those that mtf.gradients makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as original
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.built_program import BuiltProgram
from tests.house.layouts_of_run import layouts_of_run

pytestmark = pytest.mark.plain_cpu

RNG = np.random.default_rng(0)
LAYOUTS = ["", "h:rows;w:cols", "b:rows;i:cols", "o:rows;h:cols"]
FUNCTIONS: dict[str, tuple[Callable[..., mtf.Tensor], Callable[..., mtf.Tensor], Callable[..., mtf.Tensor]]] = {
    "conv2d": (mtf.conv2d, original.conv2d_backprop_input, original.conv2d_backprop_filter),
    "conv3d": (mtf.conv3d, original.conv3d_backprop_input, original.conv3d_backprop_filter),
    "conv2d_transpose": (
        mtf.conv2d_transpose, original.conv2d_transpose_backprop_input, original.conv2d_transpose_backprop_filter,
    ),
    "conv3d_transpose": (
        mtf.conv3d_transpose, original.conv3d_transpose_backprop_input, original.conv3d_transpose_backprop_filter,
    ),
}  # fmt: skip


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_the_gradients(name: str, padding: str, request: pytest.FixtureRequest) -> None:
    forward, by_input, by_filter = FUNCTIONS[name]
    is_3d, channels = "3d" in name, "o i" if "transpose" in name else "i o"
    sizes = {"b": 2, "d": 3, "h": 12, "w": 8, "i": 2, "o": 4, "fd": 2, "fh": 3, "fw": 2}
    image = ["b", *(["d"] if is_3d else []), "h", "w", "i"]
    kernel = [*(["fd"] if is_3d else []), "fh", "fw", *channels.split()]
    strides = [1, 2, 2] if is_3d else [1, 2]
    terms = (
        3 * 2 * 2 * 2,
        FUNCTION_TERMS,
        2 * 3 * 12 * 8,
    )  # of y, its sine, and the filter's gradient, the longest sum

    def program(mesh: mtf.Mesh, x: mtf.Tensor, f: mtf.Tensor) -> list[Any]:
        y = forward(x, f, strides, padding)
        dy = mtf.sin(y)
        turned = mtf.transpose(dy, dy.shape[::-1])
        own = [by_input(x.shape, f, turned, strides, padding), by_filter(x, f.shape, turned, strides, padding)]
        return [*own, *mtf.gradients(y, [x, f], [dy])]

    inputs = {
        n: (" ".join(f"{d}:{sizes[d]}" for d in dims), RNG.normal(size=[sizes[d] for d in dims]))
        for n, dims in (("x", image), ("f", kernel))
    }
    built = BuiltProgram(program, inputs)
    for layout in layouts_of_run(LAYOUTS, request.config) if padding == "SAME" else LAYOUTS[:1]:
        dx, df, wanted_dx, wanted_df = built.interpret("rows:2;cols:2", layout).results
        assert_close(dx, wanted_dx, terms=terms)
        assert_close(df, wanted_df, terms=terms)


def test_they_have_gradients_themselves() -> None:
    """By finite differences, dilation included."""
    kernel, dy = RNG.normal(size=(2, 3, 1, 2)), RNG.normal(size=(1, 4, 4, 2))
    inputs = {"f": ("fh:2 fw:3 i:1 o:2", kernel), "g": ("b:1 h:4 w:4 o:2", dy)}

    def program(f: mtf.Tensor, g: mtf.Tensor) -> list[Any]:
        dx = original.conv2d_backprop_input("b:1 h:4 w:4 i:1", f, g, 1, "SAME", dilations=2)
        loss = mtf.reduce_sum(mtf.sin(dx))
        return [loss, *mtf.gradients(loss, [f])]

    slope = interpret(program, inputs, "rows:2", "h:rows").results[1]
    shape, at = inputs["f"]
    direction, step = RNG.normal(size=at.shape), 1e-6
    losses = [
        interpret(program, {**inputs, "f": (shape, at + s * step * direction)}, "rows:1").results[0] for s in (1, -1)
    ]
    assert_close(
        np.sum(slope * direction),
        (losses[0] - losses[1]) / (2 * step),
        terms=(6, FUNCTION_TERMS, 16),
        magnitude=16 / step,
    )


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    kernel, dy = mtf.placeholder(mesh, "fh:3 fw:3 i:2 o:4"), mtf.placeholder(mesh, "b:1 h:8 w:8 o:4")
    with pytest.raises(
        ShapeError, match=r"dy is \[b:1 h:8 w:8 o:4\], and the forward operation of these shapes gives \[b:1 h:4"
    ):
        original.conv2d_backprop_input("b:1 h:8 w:8 i:2", kernel, dy, 2, "SAME")
    with pytest.raises(ShapeError, match=r"must be the channels \"c\", the last of \[b:1 h:8 w:8 c:2\]"):
        original.conv2d_backprop_input("b:1 h:8 w:8 c:2", kernel, dy, 1, "SAME")
    with pytest.raises(ShapeError, match=r"the filter \[fh:3 i:2 o:4\] must have 2 spatial dimensions"):
        original.conv2d_backprop_filter(mtf.placeholder(mesh, "b:1 h:8 w:8 i:2"), "fh:3 i:2 o:4", dy, 1, "SAME")
    with pytest.raises(DtypeError, match="float"):
        original.conv2d_backprop_input("b:1 h:8 w:8 i:2", kernel, mtf.to_bfloat16(dy), 1, "SAME")
