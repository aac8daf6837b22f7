"""What is known of positions before a program runs."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import GraphError

pytestmark = pytest.mark.quick


def test_a_range_is_known_under_every_name() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    positions = mtf.range(mesh, ("length", 6))
    assert mtf.is_range(positions)
    assert mtf.is_range(mtf.rename_dimension(positions, "length", "memory_length"))
    assert mtf.is_range(mtf.rename_dimension(mtf.rename_dimension(positions, "length", "a"), "a", "b"))


def test_what_may_be_other_numbers_is_no_range() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    positions = mtf.range(mesh, ("length", 6))
    others = {
        "shifted": positions + 1,
        "an array": mtf.constant(mesh, [0, 1, 2], "length:3", positions.dtype),
        "in rows": mtf.reshape(positions, "rows:2 columns:3"),
        "a row of rows": mtf.reshape(mtf.reshape(positions, "rows:2 columns:3"), "length:6"),
        "a number": mtf.constant(mesh, 0, dtype=positions.dtype),
    }
    assert [name for name, x in others.items() if mtf.is_range(x)] == []


def test_a_number_has_no_dimension_to_be_a_range_along() -> None:
    with pytest.raises(GraphError, match=r"must be an mtf.Tensor, not int"):
        mtf.is_range(3)  # type: ignore[arg-type]
