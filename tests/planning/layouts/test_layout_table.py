"""Layouts of a graph's tensors: from the rules, or inherited from overridden ones."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import LayoutError
from meshtf.layout import TensorLayout, convert_to_layout_rules
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout

pytestmark = pytest.mark.quick


def table_of(mesh_shape: str, rules: str) -> LayoutTable:
    return LayoutTable(mtf.convert_to_shape(mesh_shape), convert_to_layout_rules(rules))


def test_rules_lay_out_by_name_and_mesh_axes_of_one_core_split_nothing() -> None:
    table = table_of("rows:2;cols:4;deep:1", "a:rows+deep;b:cols")
    found = table.under_rules(mtf.convert_to_shape("b:8 other:3 a:4 c:5"))
    assert found == ResolvedLayout(TensorLayout((("cols",), (), ("rows",), ())))


def test_an_override_is_inherited_dimension_by_dimension() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, w = mtf.placeholder(mesh, "a:8 b:8"), mtf.placeholder(mesh, "b:8 c:8", name="w")
    moved = mtf.with_layout(x, "a:cols")
    both = mtf.einsum([moved, w], output_shape="a:8 c:8")
    plain = mtf.exp(w)
    table = table_of("rows:2;cols:4", "a:rows;c:rows")
    table.resolve(mesh.graph.operations)
    assert table.resolved(moved) == ResolvedLayout(TensorLayout((("cols",), ())), is_overridden=True)
    assert table.resolved(both) == ResolvedLayout(TensorLayout((("cols",), ("rows",))), is_overridden=True)
    assert table.resolved(plain) == ResolvedLayout(TensorLayout(((), ("rows",))))


def test_two_overrides_that_contradict_each_other_are_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "a:8")
    first, second = mtf.with_layout(x, "a:cols"), mtf.with_layout(x, "a:rows")
    assert first + second is not None
    with pytest.raises(LayoutError, match=r'"a" is split over \(cols\) in .* and over \(rows\) in .*with_layout'):
        table_of("rows:2;cols:4", "").resolve(mesh.graph.operations)


def test_what_a_pass_chose_is_known_as_chosen() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:8")
    table = table_of("rows:2;cols:4", "a:rows")
    table.resolve([x.operation])
    assert (table[x].axes, table.is_chosen(x)) == ((("rows",),), False)
    table.choose({x: ResolvedLayout(TensorLayout((("cols",),)))})
    assert (table[x].axes, table.is_chosen(x)) == ((("cols",),), True)
