"""Collectives in memory and between processes: those of the interpreter, for every element type and order of axes.

The processes stand in this one: what goes between them goes over TensorFlow's collectives, as between real ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.spmd.shared_memory_collectives import emit_for_all
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.mesh_impl.spmd.staged_collectives import StagedCollectives
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.core_positions import groups_over
from meshtf.planning.process_spans import ProcessOfCore, laid_over
from tests.house.sharpest import sharpest
from tests.mesh_impl.spmd.test_collective_dtypes import DTYPES, reductions_of, values


class Processes:
    """A mesh over processes, on the CPUs of this one."""

    def __init__(self, mesh_shape: str, process_of_core: ProcessOfCore, axes: Sequence[tuple[str, ...]]) -> None:
        self.shape = mtf.convert_to_shape(mesh_shape)
        self.process_of_core = process_of_core
        self.axes = axes
        first = range(self.shape.size)
        self.rotation = (*first[1:], 0)
        self.within = tuple(sorted(first, key=lambda core: (process_of_core[core], -core)))
        self.devices = [f"/job:localhost/replica:0/task:0/device:CPU:{(core + 1) % len(first)}" for core in first]

    def steps(self, reductions: Sequence[str]) -> list[CollectiveStep]:
        """Each kind, over all axes that there are."""
        everywhere = tuple(self.shape.dimension_names)
        steps: list[CollectiveStep] = [Permute(everywhere, self.rotation), Permute(everywhere, self.within)]
        for axes in self.axes:
            steps += [AllReduce(axes, name) for name in reductions]
            steps += [AllGather(axes, 1), AllToAll(axes, 0, 1), AllToAll(axes, 1, 0), ReduceScatter(axes, 1)]
        return steps

    def run(self, steps: Sequence[CollectiveStep], slices: np.ndarray) -> list[list[np.ndarray]]:
        """By step, what each core has afterwards, all in one program."""
        mesh = DeviceMesh(self.shape, tuple(self.devices), 60.0, self.process_of_core)
        declared = SpmdCollectives(mesh, self.axes, [self.rotation, self.within])

        @tf.function(autograph=False)
        def program(x: tf.Tensor) -> list[list[tf.Tensor]]:
            bound = {core: declared.bind(declared.arguments(core)) for core in range(self.shape.size)}
            staged = StagedCollectives(self.shape, self.process_of_core, bound)
            given = dict(enumerate(tf.unstack(x)))
            made = [emit_for_all(step, given, staged) for step in steps]
            return [[own[core] for core in given] for own in made]

        return [[own.numpy() for own in by_core] for by_core in program(tf.constant(slices))]

    def check(self, x: np.ndarray, reductions: Sequence[str] = ("add",)) -> None:
        steps = self.steps(reductions)
        for step, found in zip(steps, self.run(steps, x), strict=True):
            with np.errstate(over="ignore"):
                expected = step.interpret(list(x), groups_over(step.axes, self.shape).tolist())
            np.testing.assert_array_equal(found, expected, f"{step}")
            assert found[0].dtype == x.dtype


def over(mesh_shape: str, num_processes: int, *outermost: str) -> ProcessOfCore:
    return laid_over(mtf.convert_to_shape(mesh_shape), num_processes, outermost)


SOME = {tf.bfloat16, tf.bool}
"""In the short run: those that processes exchange as others.

Stages leave elements to collectives that have tests with every dtype.
"""


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(dtype, marks=[] if dtype in SOME else [pytest.mark.long]) for dtype in DTYPES],
    ids=lambda d: d.name,
)
def test_each_kind(dtype: tf.DType) -> None:
    """Over an axis across processes, and with one within them."""
    mesh_shape, axes = "rows:2;cols:2", [("cols",), ("cols", "rows")]
    Processes(mesh_shape, over(mesh_shape, 2, "cols"), axes).check(values(dtype, 4, 4, 8), reductions_of(dtype))


EVERY_ORDER = [axes for n in (1, 2, 3) for axes in itertools.permutations("abc", n)]
SOME_ORDERS = [("b",), ("a", "c"), ("c", "a", "b")]
"""Groups with a stride, and those across processes, whose axes go first or last."""


@pytest.mark.parametrize(
    ("process_of_core", "orders"),
    sharpest(
        [
            (over("a:2;b:2;c:2", 4, "c"), SOME_ORDERS),
            (over("a:2;b:2;c:2", 4, "c"), EVERY_ORDER),
            (over("a:2;b:2;c:2", 2), EVERY_ORDER),
            (over("a:2;b:2;c:2", 2, "b"), EVERY_ORDER),
            (over("a:2;b:2;c:2", 8), EVERY_ORDER),
        ],
        [(over("a:2;b:2;c:2", 4, "c"), SOME_ORDERS)],
    ),
    ids=str,
)
def test_every_order_of_axes(process_of_core: ProcessOfCore, orders: list[tuple[str, ...]]) -> None:
    Processes("a:2;b:2;c:2", process_of_core, orders).check(values(tf.float32, 8, 8, 16))


def test_more_than_two_processes_with_more_than_two_cores_each() -> None:
    Processes("a:9", over("a:9", 3), [("a",)]).check(values(tf.float32, 9, 9, 18))


def test_processes_with_different_numbers_of_cores() -> None:
    """Then each core takes part by itself."""
    axes = [("rows",), ("cols",), ("cols", "rows")]
    Processes("rows:2;cols:3", (0, 0, 0, 0, 1, 1), axes).check(values(tf.float32, 6, 6, 12))


def test_a_process_takes_part_once_and_all_its_cores_have_what_comes_of_it() -> None:
    """In an allreduce of eight numbers on each of four cores a half of the sum is exchanged, and a half gathered."""
    mesh_shape, process_of_core = mtf.convert_to_shape("all:4"), (0, 0, 1, 1)
    mesh = DeviceMesh(mesh_shape, tuple(f"CPU:{core}" for core in range(4)), 60.0, process_of_core)
    declared, own = SpmdCollectives(mesh, [("all",)]), (2, 3)

    @tf.function(autograph=False)
    def program() -> list[tf.Tensor]:
        bound = {core: declared.bind(declared.arguments(core)) for core in own}
        staged = StagedCollectives(mesh_shape, process_of_core, bound)
        given = {core: tf.zeros([8]) for core in own}
        made = [emit_for_all(step, given, staged) for step in (AllReduce(("all",)), AllGather(("all",), 0))]
        for by_core in made:
            assert list(by_core) == [2, 3]
            assert by_core[2] is by_core[3]
        return [by_core[2] for by_core in made]

    operations = program.get_concrete_function().graph.get_operations()
    sent = [(op.type, op.inputs[0].shape.num_elements()) for op in operations if op.type.startswith("Collective")]
    assert sent == [("CollectiveAllToAllV2", 8), ("CollectiveGatherV2", 4), ("CollectiveGatherV2", 16)]
