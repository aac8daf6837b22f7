"""Taking mesh axes apart, and putting them together."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st

import meshtf as mtf
from meshtf.axis_parts import WHOLE_AXES, AxisParts
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
