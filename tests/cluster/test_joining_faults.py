"""Faults while processes find one another: none waits beyond its limit, and each names who is at fault."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable

import pytest

from tests.cluster.joining_faults import KINDS, Case


def problems(cases: Iterable[Case]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return [problem for found in pool.map(Case.problems, cases) for problem in found]


def test_one_fault_of_each_kind() -> None:
    found = problems(Case.drawn(seed, kind) for seed, kind in enumerate(KINDS))
    assert not found, "\n".join(found)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_faults_drawn_at_random(seed: int) -> None:
    found = problems(Case.drawn(1000 * seed + number) for number in range(140))
    assert not found, "\n".join(found)
