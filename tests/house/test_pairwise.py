"""Which cases of a sweep are chosen."""

from __future__ import annotations

import itertools

from tests.house.pairwise import pairwise


def test_every_two_values_meet() -> None:
    sizes, steps, paddings = range(5), ("1", "2", "3", "4"), (True, False)
    chosen = pairwise(itertools.product(sizes, steps, paddings))
    assert len(chosen) < 30
    for places in itertools.combinations(range(3), 2):
        found = {tuple(case[i] for i in places) for case in chosen}
        assert found == {*itertools.product(*((sizes, steps, paddings)[i] for i in places))}


def test_what_is_not_allowed_is_not_chosen() -> None:
    allowed = [(a, b, c) for a, b, c in itertools.product(range(3), repeat=3) if (a, b) != (2, 2)]
    chosen = pairwise(allowed)
    assert set(chosen) <= set(allowed)
    assert {case[:2] for case in chosen} == {case[:2] for case in allowed}


def test_two_parameters_are_crossed() -> None:
    cases = [*itertools.product("abc", "xy")]
    assert sorted(pairwise(cases)) == sorted(cases)
