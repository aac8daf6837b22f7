from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.lowering.emit.alike_cores import alike_cores
from meshtf.planning.plan import Plan

SHAPE, ROWS, COLUMNS = "rows:2;cols:2", mtf.Dimension("x", 4), mtf.Dimension("y", 6)
HERE = {core: f"/job:localhost/replica:0/task:0/device:CPU:{core}" for core in range(4)}


def plan_of(layout: str, *, summed: bool = False) -> Plan:
    """That of a program that assigns a matrix."""

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [ROWS, COLUMNS])
        return mtf.reduce_sum(mtf.assign_add(w, w)) if summed else mtf.assign_add(w, w)

    return mtf.function(program, mtf.SpmdMeshImpl(SHAPE, layout))._execution.plan


@pytest.mark.parametrize(
    ("layout", "expected"),
    [("", {1: 0, 2: 0, 3: 0}), ("x:rows", {1: 0, 3: 2}), ("y:cols", {2: 0, 3: 1}), ("x:rows;y:cols", {})],
)
def test_cores_with_the_same_slices_are_alike(layout: str, expected: dict[int, int]) -> None:
    assert alike_cores(plan_of(layout), HERE) == expected


def test_cores_that_communicate_are_all_needed() -> None:
    assert alike_cores(plan_of("x:rows", summed=True), HERE) == {}


def test_devices_of_their_own_make_their_own() -> None:
    gpus = {core: f"/job:localhost/replica:0/task:0/device:GPU:{core}" for core in range(4)}
    assert alike_cores(plan_of(""), gpus) == {}


def test_of_the_cores_that_are_here_the_first_makes_it() -> None:
    assert alike_cores(plan_of("y:cols"), {core: HERE[core] for core in (1, 2, 3)}) == {3: 1}


def test_what_is_initialized_together_is_written_apart() -> None:
    """Cores with the same slices start with the same memory, which a write must not change for others."""

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [ROWS, COLUMNS])
        return mtf.assign_add(w, mtf.ones(mesh, w.shape))

    step = mtf.function(program, mtf.SpmdMeshImpl(SHAPE, "y:cols"))
    step.initialize()
    slices = step.variables.slices("w").slices
    before = [slices[core].numpy() for core in range(4)]
    np.testing.assert_array_equal(before[0], before[2])
    np.testing.assert_array_equal(before[1], before[3])
    assert np.any(before[0] != before[1])
    slices[2].assign(before[1])
    np.testing.assert_array_equal(slices[0].numpy(), before[0])
    slices[2].assign(before[2])
    for _ in range(2):
        step()
    for core in range(4):
        np.testing.assert_array_equal(slices[core].numpy(), before[core] + 1 + 1)
