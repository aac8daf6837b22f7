"""Collectives of cores that share a memory: those of the interpreter, for every element type, and no copy too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.spmd.shared_memory_collectives import SharedMemoryCollectives, emit_for_all
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.core_positions import groups_over
from tests.mesh_impl.spmd.test_collective_dtypes import DTYPES, reductions_of, values

MESH = mtf.convert_to_shape("rows:2;cols:3")


def run(step: CollectiveStep, slices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return list(emit_for_all(step, dict(enumerate(slices)), SharedMemoryCollectives(MESH)).values())


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("axes", [("rows",), ("cols",), ("cols", "rows"), ("rows", "cols")])
def test_each_kind(axes: tuple[str, ...], dtype: tf.DType) -> None:
    x = list(values(dtype, 6, 6, 12))
    steps: list[CollectiveStep] = [AllReduce(axes, name) for name in reductions_of(dtype)]
    steps += [AllGather(axes, 1), AllToAll(axes, 0, 1), AllToAll(axes, 1, 0), ReduceScatter(axes, 1)]
    steps.append(Permute(("rows", "cols"), (3, 1, 0, 2, 5, 4)))
    groups = groups_over(axes, MESH).tolist()
    for step in steps:
        found = run(step, [tf.constant(own) for own in x])
        with np.errstate(over="ignore"):
            expected = step.interpret(x, groups)
        for core in range(6):
            np.testing.assert_array_equal(found[core], expected[core], f"{step}, core {core}")
            assert found[core].dtype == dtype


def test_what_cores_have_alike_is_there_once() -> None:
    x = [tf.fill([4, 4], float(core)) for core in range(6)]
    for step in (AllReduce(("cols",)), AllGather(("cols",), 0)):
        assert len({id(own) for own in run(step, x)}) == 2  # one for each of the rows


def test_sums_of_many_small_terms_are_rounded_once() -> None:
    """In bfloat16, 256 and four times 0.75 would stay 256; a permute is bit for bit."""
    mesh = mtf.convert_to_shape("all:5")
    x = [tf.constant([value], tf.bfloat16) for value in (256.0, 0.75, 0.75, 0.75, 0.75)]
    total = SharedMemoryCollectives(mesh).all_reduce(dict(enumerate(x)), ["all"], "add")
    assert float(total[0][0]) == 260.0  # 259 lies between two bfloat16 numbers; to the even one
    nan = tf.bitcast(tf.constant([0x7FC1], tf.uint16), tf.bfloat16)
    moved = SharedMemoryCollectives(mesh).permute(dict(enumerate([nan, *x[1:]])), (1, 2, 3, 4, 0))
    assert int(tf.bitcast(moved[1], tf.uint16)[0]) == 0x7FC1


class _SumOfLargest:
    """A collective made of others and of local work: the sum along one axis of the largest along another."""

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        largest = collectives.all_reduce(x + 1, ["cols"], "max")
        return collectives.all_reduce(2 * largest, ["rows"], "add") - x


def test_kinds_that_are_made_of_others() -> None:
    slices = [tf.constant([core, -core]) for core in range(6)]
    found = run(cast("CollectiveStep", _SumOfLargest()), slices)
    largest = np.array([[2 + 1, 0 + 1], [5 + 1, -3 + 1]])
    expected = [2 * largest.sum(0) - np.array([core, -core]) for core in range(6)]
    np.testing.assert_array_equal(found, expected)
