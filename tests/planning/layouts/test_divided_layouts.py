"""How cores divide a variable among themselves."""

from __future__ import annotations

import pytest

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.dimension import convert_to_shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning.layouts.divided_layouts import Divisible, divided, parts_that_help

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:4")
CORES = convert_to_shape("cores:8")


def variable(shape: str, repeated: str, *layout: Axes, **options: float) -> Divisible:
    named = convert_to_shape(shape)
    axes = layout or ((),) * named.ndims
    return Divisible(named, TensorLayout(axes), frozenset(repeated.split("+")), **options)


@pytest.mark.parametrize(
    ("divisible", "expected"),
    [
        (variable("a:8 b:8", "rows+cols"), (("rows", "cols"), ())),
        (variable("a:2 b:4", "rows+cols"), (("rows",), ("cols",))),
        (variable("a:3 b:8", "cols"), ((), ("cols",))),
        (variable("a:8 b:8", "rows", ("cols",), ()), (("cols", "rows"), ())),
        (variable("a:6 b:8", "rows", (), ("cols",)), (("rows",), ("cols",))),
        # one of 64 is padding, which is little; of 5 among 4 it would be three of 8
        (variable("a:63", "cols"), (("cols",),)),
        (variable("a:63", "cols", most_padding=0.0), ((),)),
        (variable("a:5", "cols"), ((),)),
        # less padding is better than none elsewhere being split
        (variable("a:63 b:4", "cols"), ((), ("cols",))),
        # a dimension that is split already is not padded
        (variable("a:126", "cols", ("rows",)), (("rows",),)),
        (variable("a:5", "rows+cols"), ((),)),
    ],
)
def test_repeated_axes_are_added_where_they_divide(divisible: Divisible, expected: tuple[Axes, ...]) -> None:
    assert divided(divisible, MESH, WHOLE_AXES).axes == expected


def test_an_axis_that_divides_nothing_is_taken_apart() -> None:
    """8 divides neither 12 nor 20; 4 and 2 do."""
    weights = variable("a:12 b:20", "cores", most_padding=0.0)
    assert divided(weights, CORES, WHOLE_AXES).is_fully_replicated
    axis_parts = parts_that_help([weights], CORES)
    finer = axis_parts.taken_apart(CORES)
    assert finer.size == 8
    parts = frozenset(axis_parts.axes_taken_apart(("cores",)))
    found = divided(Divisible(weights.shape, weights.layout, parts, 0.0), finer, axis_parts)
    assert axes_size(found.used, finer) == 8
    assert [d.size % n for d, n in zip(weights.shape, found.parts(finer), strict=True)] == [0, 0]


def test_axes_stay_whole_where_that_divides_as_much() -> None:
    assert parts_that_help([variable("a:16 b:3", "cores")], CORES) == WHOLE_AXES
    assert parts_that_help([variable("a:5 b:3", "cores")], CORES) == WHOLE_AXES
    assert parts_that_help([variable("a:7", "cores")], convert_to_shape("cores:7")) == WHOLE_AXES


def test_the_larger_of_two_variables_says_how() -> None:
    """Of a mesh axis of 12 the small one wants 6 and 2, the large one 4 and 3."""
    mesh = convert_to_shape("cores:12")
    small, large = variable("a:6 b:2", "cores", most_padding=0.0), variable("a:4 b:3 c:50", "cores", most_padding=0.0)
    assert parts_that_help([small, large], mesh) == AxisParts.of(mesh, {"cores": (3, 4)})
