"""Layout rules are pairs, and layouts of tensors numbers of mesh axes."""

from __future__ import annotations

import pytest

import meshtf
import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import LayoutError

BOTH = "batch:rows;batch:all;heads:cols"
"""Rules for two meshes in one text."""


def test_rules_are_pairs() -> None:
    rules = mtf.convert_to_layout_rules(BOTH)
    assert rules._pairs == {("batch", "rows"), ("batch", "all"), ("heads", "cols")}
    assert rules.tensor_dimension_to_mesh_axis(mtf.Dimension("heads", 8), "rows:2;cols:4") == 1
    assert rules.tensor_dimension_to_mesh_axis(mtf.Dimension("length", 8), "rows:2;cols:4") is None
    assert rules.mesh_dimension_name_to_tensor_dimension_names("cols") == ["heads"]
    given = [("heads", "cols"), ("batch", "rows")]
    assert (
        mtf.LayoutRules(given) == mtf.convert_to_layout_rules("batch:rows;heads:cols") == mtf.LayoutRules(given[::-1])
    )
    assert mtf.LayoutRules(given) == meshtf.LayoutRules(given)
    with pytest.raises(LayoutError, match="not of the form dimension:axis"):
        mtf.convert_to_layout_rules("batch;heads")


@pytest.mark.parametrize(("mesh", "axes"), [("rows:2;cols:2", [0, None, 1]), ("all:4", [0, None, None])])
def test_one_text_serves_two_meshes(mesh: str, axes: list[int | None]) -> None:
    mesh_impl = mtf.placement_mesh_impl.PlacementMeshImpl(mesh, BOTH, [""] * 4)
    layout = mesh_impl.tensor_layout("batch:8 length:3 heads:4")
    assert layout == mtf.TensorLayout(axes)
    assert (list(layout), layout[0], len(layout)) == (axes, 0, 3)
    assert layout.mesh_axis_to_tensor_axis(2) == (0, 2 if 1 in axes else None)
    assert mesh_impl.mesh_axis_to_cumprod("batch:8 length:3 heads:4") == [1, 24][: mesh_impl.ndims]


def test_a_mesh_that_has_both_axes_is_refused() -> None:
    with pytest.raises(LayoutError, match='write "batch:rows\\+all"'):
        mtf.placement_mesh_impl.PlacementMeshImpl("rows:2;all:2", "batch:rows;batch:all;batch:absent", [""] * 4)


def test_a_mesh_on_paper_answers() -> None:
    mesh_impl = mtf.MeshImpl(shape="rows:2;cols:4", layout_rules="batch:rows;heads:cols")
    assert (mesh_impl.ndims, mesh_impl.size, mesh_impl.supports_control_dependencies) == (2, 8, True)
    assert mesh_impl.slice_begin("batch:8 heads:4", 5) == [4, 1]
