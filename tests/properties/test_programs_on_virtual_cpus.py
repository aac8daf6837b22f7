"""Promise 1 on virtual CPUs: random programs under random layouts, in worker processes; half of them by TensorFlow's
collectives, with devices in any order."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Sequence

import pytest

from meshtf.planning.layouts.layout_table import LayoutTable
from tests.properties.random_programs.cases import CASES, EVERY_CASE, control_flow, nested
from tests.properties.random_programs.emission import Batch, Joint
from tests.properties.random_programs.generate import names_in
from tests.properties.random_programs.workers import run_batches

_MESHES = ["rows:2;cols:2", "all:8", "rows:2;cols:4", "x:2;y:2;z:2", "rows:2;cols:2", "rows:4;cols:2", "all:1"]
_PROGRAMS_OF_A_BATCH = 20
_PROGRAMS, _PROGRAMS_OF_A_TEST = 200, 40


def batches(seeds: Sequence[int]) -> Iterator[Batch]:
    """Every program once, those that are drawn around one case in different batches."""
    rng = random.Random(seeds[0])
    order = rng.sample(seeds, len(seeds))
    for number in range(math.ceil(len(order) / _PROGRAMS_OF_A_BATCH)):
        mesh_shape = _MESHES[number % len(_MESHES)]
        size = math.prod(int(axis.split(":")[1]) for axis in mesh_shape.split(";"))
        by_runtime = bool(number % 2)
        devices = rng.sample(range(8), size) if by_runtime else range(size)
        start = number * _PROGRAMS_OF_A_BATCH
        seeds_of_it = tuple(order[start : start + _PROGRAMS_OF_A_BATCH])
        yield Batch(mesh_shape, tuple(devices), seeds_of_it, shares_memory=not by_runtime)


def check(seeds: Sequence[int]) -> None:
    found = run_batches(list(batches(seeds)), workers=min(4, os.cpu_count() or 1))
    assert not found, f"{len(found)} programs failed\n\n" + "\n\n".join(found[:5])


@pytest.mark.plain_cpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("first", "step"), [(0, 24), *(pytest.param(first, 12, marks=pytest.mark.long) for first in range(12))]
)
def test_random_programs(first: int, step: int) -> None:
    """Every case of a single operation once, some with sizes that layouts do not divide; a short run has a few."""
    check([i + len(EVERY_CASE) * (i // 12 % 3 == 0) for i in range(first, len(CASES), step)])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cases", "shares_memory"),
    [
        (["loop in branch in loop", "scan in branch in scan", "recomputed loop in scan"], True),
        *(pytest.param([*control_flow.CASES, *nested.CASES], x, marks=pytest.mark.long) for x in (True, False)),
    ],
)
def test_loops_and_branches(cases: list[str], shares_memory: bool) -> None:
    """One of each in one program: their frames and collectives must not be taken for one another's."""
    names = list(EVERY_CASE)
    batch = Batch("rows:2;cols:2", (3, 1, 0, 2), tuple(map(names.index, cases)), shares_memory=shares_memory)
    found = run_batches([batch], workers=1)
    assert not found, "\n\n".join(found)


def test_programs_in_one_graph_have_one_layout() -> None:
    """Also of names that a library gives dimensions, and that several of them have."""
    names = list(EVERY_CASE)
    cases = ["serialize_training_step", "mixture_of_experts switch", "local_attention"]
    seeds = [names.index(case) + n * len(names) for n in range(3) for case in cases]
    joint = Joint(Batch("rows:3;cols:2", (), tuple(seeds)))
    shared = ["microbatch", "experts", "length"]
    assert all(sum(name in names_in(program) for program in joint.programs) > 1 for name in shared)
    for rules in (joint.layout, joint.parameter_layout):
        LayoutTable(joint.mesh_shape, rules, max_padding=1.0).resolve(joint.mesh.graph.operations)


@pytest.mark.long
@pytest.mark.parametrize("number", range(_PROGRAMS // _PROGRAMS_OF_A_TEST))
def test_programs_of_this_run(seed: int, number: int) -> None:
    first = seed + number * _PROGRAMS_OF_A_TEST
    check(range(first, first + _PROGRAMS_OF_A_TEST))
