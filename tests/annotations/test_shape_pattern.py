"""Annotations, parsed from their text."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.annotations.shape_pattern import DimensionPattern, parse_shape_pattern
from meshtf.errors import ShapeError

pytestmark = pytest.mark.quick


def test_what_the_text_says() -> None:
    pattern = parse_shape_pattern("batch:64 length, memory:length; heads")
    assert pattern.dims == (
        DimensionPattern("batch", 64),
        DimensionPattern("length", "length"),
        DimensionPattern("memory", "length"),
        DimensionPattern("heads", "heads"),
    )
    assert [d.variable for d in pattern.dims] == ["batch", "length", "length", "heads"]
    assert pattern.after is None
    assert str(pattern) == "batch:64 length memory:length heads"


@pytest.mark.parametrize(
    ("text", "before", "after"), [("", 0, None), ("...", 0, 0), ("a ... b c", 1, 2), ("a b ...", 2, 0)]
)
def test_dots_stand_for_any_other_dimensions(text: str, before: int, after: int | None) -> None:
    pattern = parse_shape_pattern(text)
    assert (len(pattern.before), None if pattern.after is None else len(pattern.after)) == (before, after)
    assert str(pattern) == text


@pytest.mark.parametrize(
    ("text", "fact", "underline"),
    [
        ("batch:64 1x", '"1x" is not a dimension', "         ^^"),
        ("batch:64x y", '"batch:64x" is not a dimension', "^^^^^^^^^"),
        ("a b a", 'dimension "a" stands twice', "    ^"),
        ("... a ...", '"..." stands twice', "      ^^^"),
        ("a .. b", '".." is not a dimension', "  ^^"),
    ],
)
def test_the_token_at_fault_is_underlined(text: str, fact: str, underline: str) -> None:
    with pytest.raises(ShapeError) as caught:
        mtf.f32[text]
    assert str(caught.value).startswith(fact)
    assert f"    {text}\n    {underline}\n  at {__file__}:" in str(caught.value)


def test_dimensions_in_place_of_text() -> None:
    batch, shape = mtf.Dimension("batch", 64), mtf.Shape([("length", 16), ("hidden", 8)])
    assert mtf.f32[batch] == mtf.f32["batch:64"]
    assert mtf.f32[batch, "heads"] == mtf.f32["batch:64 heads"]
    assert mtf.f32[shape] == mtf.f32["length:16 hidden:8"]
