from __future__ import annotations

import pytest

from meshtf.dimension import convert_to_shape
from meshtf.errors import LayoutError
from meshtf.mesh_impl.processor_groups import (
    ordered_groups,
    pnum_to_group,
    pnum_to_processor_coordinates,
    processor_coordinates_to_pnum,
    processor_groups,
)
from meshtf.mesh_impl.spmd._group_facts import GroupFacts

MESH = convert_to_shape("a:2;b:3;c:4")


def test_coordinates_are_row_major() -> None:
    assert pnum_to_processor_coordinates(MESH, 17) == [1, 1, 1]
    assert [processor_coordinates_to_pnum(MESH, pnum_to_processor_coordinates(MESH, p)) for p in range(24)] == list(
        range(24)
    )
    assert pnum_to_processor_coordinates([2, 3, 4], 23) == [1, 2, 3]
    assert pnum_to_processor_coordinates([], 0) == []


def test_groups_differ_along_their_axes_only() -> None:
    mesh = convert_to_shape("rows:2;cols:3")
    assert processor_groups(mesh, ["cols"]) == [[0, 1, 2], [3, 4, 5]]
    assert processor_groups(mesh, [0]) == [[0, 3], [1, 4], [2, 5]]
    assert processor_groups(mesh, []) == [[0], [1], [2], [3], [4], [5]]
    assert processor_groups([2, 3], [1, 0]) == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("dims", [["a"], ["b"], ["c", "a"], ["b", "c"], ["a", "b", "c"], []])
def test_numbers_of_groups(dims: list[str]) -> None:
    for number, group in enumerate(processor_groups(MESH, dims)):
        assert [pnum_to_group(MESH, dims, core) for core in group] == [number] * len(group)


def test_the_first_axis_of_an_order_is_major() -> None:
    mesh = convert_to_shape("rows:2;cols:3")
    assert ordered_groups(mesh, ["rows", "cols"]).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert ordered_groups(mesh, ["cols", "rows"]).tolist() == [[0, 3, 1, 4, 2, 5]]


def test_facts_of_permuted_devices() -> None:
    facts = GroupFacts.of(convert_to_shape("rows:2;cols:2"), ["cols"], order=[3, 1, 0, 2])
    assert facts.groups.tolist() == [[0, 1], [2, 3]]
    assert facts.rank.tolist() == [[1, 0], [0, 1]]
    assert not facts.in_order
    assert facts.ranks().tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert facts.keys(lambda by_rank: 10 * by_rank[0] + by_rank[1]).tolist() == [10, 10, 23, 23]
    assert facts.partner_rows().tolist() == [[0, 0], [1, 0], [0, 1], [0, 0]]
    assert facts.own_position().tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pnum_to_processor_coordinates([2, 3], 6), "core 6 is not one of the 6 cores"),
        (lambda: processor_coordinates_to_pnum([2, 3], [0, 3]), r"coordinates \[0, 3\] are not inside"),
        (lambda: processor_groups(MESH, ["aa"]), 'no axis "aa"'),
        (lambda: processor_groups(MESH, ["a", 0]), "stands twice"),
        (lambda: processor_groups(MESH, [3]), "does not exist"),
    ],
)
def test_errors(call: object, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        call()
