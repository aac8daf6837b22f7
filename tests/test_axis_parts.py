"""Taking mesh axes apart, and putting them together."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import meshtf as mtf
from meshtf.axis_parts import WHOLE_AXES, AxisParts, sizes_of_parts
from meshtf.errors import LayoutError
from meshtf.layout import TensorLayout
from meshtf.planning import core_positions

MESH = mtf.Shape([("pods", 3), ("data", 12), ("model", 2)])
PARTS = AxisParts.of(MESH, {"data": (4, 3), "pods": (3, 1)})


def test_mesh_and_text() -> None:
    apart = PARTS.taken_apart(MESH)
    assert str(apart) == "pods.0:3 pods.1:1 data.0:4 data.1:3 model:2"
    assert PARTS.joined(apart) == MESH
    assert str(PARTS) == "data:12 in data.0:4 and data.1:3; pods:3 in pods.0:3 and pods.1:1"
    assert PARTS
    assert not WHOLE_AXES
    assert WHOLE_AXES.taken_apart(MESH) == WHOLE_AXES.joined(MESH) == MESH


@hypothesis.given(st.permutations(["pods", "data", "model"]), st.integers(0, 3))
def test_cores_keep_their_slices(order: list[str], cut: int) -> None:
    axes = (tuple(order[:cut]), tuple(order[cut:]))
    apart = tuple(map(PARTS.axes_taken_apart, axes))
    finer = PARTS.taken_apart(MESH)
    for core in range(MESH.size):
        assert core_positions.block(core, axes, MESH) == core_positions.block(core, apart, finer)
    assert PARTS.layout_joined(TensorLayout(apart)) == TensorLayout(axes)
    assert PARTS.layout_taken_apart(TensorLayout(axes)) == TensorLayout(apart)


def test_parts_that_stand_apart_keep_their_names() -> None:
    for axes in (("data.1", "data.0"), ("data.0",), ("data.0", "model", "data.1")):
        assert PARTS.axes_joined(axes) == axes
    assert PARTS.axes_joined(("model", "data.0", "data.1")) == ("model", "data")


def product(x: mtf.Tensor) -> mtf.Tensor:
    w = mtf.get_variable(x.mesh, "w", "width:8 inner:6")
    y = mtf.with_layout(mtf.einsum([x, w], "batch:12 inner:6"), "inner:data.0")
    loss = mtf.reduce_sum(mtf.square(mtf.with_layout(y, None)))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def test_one_axis_splits_two_dimensions_by_its_parts() -> None:
    """The axis as a whole splits the batch, its parts the weights; values are those of one core."""
    x = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    inputs = {"x": ("batch:12 width:8", x)}
    one = mtf.testing.interpret(product, inputs, "all:1;data:1", "", axis_parts="data:1x1")
    options: dict[str, Any] = {"parameter_layout": "width:data.1;inner:data.0", "axis_parts": "data:3x4"}
    many = mtf.testing.interpret(product, inputs, "all:1;data:12", "batch:data", **options)
    mtf.testing.assert_close(many.results, one.results, terms=(8, 72), dtype="float32")
    mtf.testing.assert_close(many.variables["w"], one.variables["w"], terms=(8, 72), dtype="float32")
    step = mtf.function(
        product, mtf.PlanMeshImpl("data:12", "batch:data", **options), {"x": mtf.TensorSpec("batch:12 width:8")}
    )
    report = step.report()
    assert [v.layout for v in report.variables] == ["width:8/data.1 inner:6/data.0"]
    assert next(t for t in report.tensors if t.name == "x").layout == "batch:12/data width:8"
    assert report.axis_parts == (("data.0", 3), ("data.1", 4))


@pytest.mark.parametrize(
    ("parts", "layout", "expected"),
    [
        ("data:3x5", "", "axis_parts has 3x5 = 15 cores along data, and mesh [data:12 model:2] has 12"),
        ("dat:3x4", "", 'names mesh axis "dat", which mesh [data:12 model:2] does not have; did you mean "data"?'),
        ("data:12", "", "axis_parts: not of the form axis:sizexsize:\n    data:12"),
        ({"data": (12,)}, "", 'mesh axis "data" is to be taken apart into (12,); give two positive sizes or more'),
        ((), "width:data.0", 'for parts of data give axis_parts, such as "data:2x4"'),
        ("data:3x4", "width:data.2", 'names mesh axis "data.2", which mesh'),
        ("data:3x4", "batch:data;width:data.1", '"batch" and "width" are both split over mesh axis "data.1"'),
    ],
)
def test_parts_that_cannot_be(parts: Any, layout: str, expected: str) -> None:
    def build() -> mtf.Function:
        mesh_impl = mtf.PlanMeshImpl("data:12;model:2", layout, axis_parts=parts)
        return mtf.function(lambda x: x + 1.0, mesh_impl, {"x": mtf.TensorSpec("batch:12 width:8")})

    with pytest.raises(LayoutError) as caught:
        build()
    assert expected in str(caught.value)


def test_sizes_of_parts_are_text_or_a_mapping() -> None:
    assert sizes_of_parts("data:16x32;model:2x2x2") == (("data", (16, 32)), ("model", (2, 2, 2)))
    assert sizes_of_parts({"data": (16, 32)}) == sizes_of_parts((("data", (16, 32)),)) == sizes_of_parts("data:16x32")
