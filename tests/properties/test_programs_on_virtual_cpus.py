"""Promise 1 on real collectives: random programs under random layouts, devices in any order, in worker processes."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator

import pytest

from tests.properties.random_programs.cases import control_flow
from tests.properties.random_programs.emission import Batch
from tests.properties.random_programs.generate import CASES
from tests.properties.random_programs.workers import run_batches

_MESHES = ["rows:2;cols:2", "all:8", "rows:2;cols:4", "x:2;y:2;z:2", "rows:2;cols:2", "rows:4;cols:2", "all:1"]
_PROGRAMS_PER_BATCH = 20
_MANY = 320


def batches(count: int, seed: int) -> Iterator[Batch]:
    """At least `count` programs in all, every case as often as any other, the same in every run."""
    rng = random.Random(seed)
    names: list[str] = []
    while len(names) < count:
        names += rng.sample(list(CASES), len(CASES))
    for number in range(math.ceil(count / _PROGRAMS_PER_BATCH)):
        mesh_shape = _MESHES[number % len(_MESHES)]
        size = math.prod(int(axis.split(":")[1]) for axis in mesh_shape.split(";"))
        devices = rng.sample(range(8), size) if number % 2 else range(size)
        start = number * _PROGRAMS_PER_BATCH
        cases = tuple(dict.fromkeys(names[start : start + _PROGRAMS_PER_BATCH]))
        yield Batch(mesh_shape, tuple(devices), cases, seed=1000 * seed + number)


def check(count: int, seed: int) -> None:
    found = run_batches(list(batches(count, seed)), workers=min(4, os.cpu_count() or 1))
    assert not found, f"{len(found)} programs failed\n\n" + "\n\n".join(found[:5])


@pytest.mark.timeout(600)
def test_random_programs() -> None:
    """Every case once."""
    check(len(CASES), seed=0)


@pytest.mark.timeout(300)
def test_loops_and_branches() -> None:
    """One of each in one program: their frames and collectives must not be taken for one another's."""
    cases = tuple(control_flow.CASES)
    found = run_batches([Batch("rows:2;cols:2", (3, 1, 0, 2), cases, seed=7)], workers=1)
    assert not found, "\n\n".join(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(11))
def test_many_random_programs(seed: int) -> None:
    check(_MANY, seed)
