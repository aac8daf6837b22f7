"""What instructions take beside their inputs and outputs, worked out by hand."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layout import TensorLayout
from meshtf.lowering.report.memory.peak_memory import peak_memory
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.plan import Value

MESH = mtf.Shape([mtf.Dimension("cores", 4)])
SENT = 8 * 12 * 4  # bytes of float32 [8, 12]


def value(sizes: tuple[int, int], dtype: tf.DType = tf.float32) -> Value:
    shape = mtf.Shape([mtf.Dimension("rows", sizes[0]), mtf.Dimension("columns", sizes[1])])
    return Value(0, shape, dtype, TensorLayout(((), ())), (), sizes)


def space(step: CollectiveStep, after: tuple[int, int], dtype: tf.DType = tf.float32, mesh: mtf.Shape = MESH) -> int:
    """Of a collective of [8, 12]."""
    return step.scratch_bytes(value((8, 12), dtype), value(after, dtype), mesh)


@pytest.mark.parametrize(
    ("step", "after", "expected"),
    [
        # What the neighbours send, before it is added.
        (AllReduce(("cores",)), (8, 12), SENT),
        # Slices of rows are received where they belong; those of columns have to be put in order.
        (AllGather(("cores",), 0), (32, 12), 0),
        (AllGather(("cores",), 1), (8, 48), 4 * SENT),
        # All terms of the own block; columns are cut out before.
        (ReduceScatter(("cores",), 0), (2, 12), SENT),
        (ReduceScatter(("cores",), 1), (8, 3), 2 * SENT),
        # Columns are cut out before, or put in order afterwards.
        (AllToAll(("cores",), split_dim=0, concat_dim=1), (2, 48), SENT),
        (AllToAll(("cores",), split_dim=1, concat_dim=0), (32, 3), SENT),
        # A gather with the core that it sends to, and one with the core that it hears from.
        (Permute((), destinations=(1, 2, 3, 0)), (8, 12), 4 * SENT),
        (Permute((), destinations=(1, 0, 3, 2)), (8, 12), 2 * SENT),
    ],
)
def test_collectives(step: CollectiveStep, after: tuple[int, int], expected: int) -> None:
    assert space(step, after) == expected


def test_sums_of_short_numbers_are_done_in_float32() -> None:
    step = ReduceScatter(("cores",), 0)
    assert space(step, (2, 12), tf.bfloat16) == SENT // 2 + SENT
    assert space(step, (2, 12), tf.float32) == SENT


def test_a_collective_of_one_core_takes_nothing() -> None:
    alone = mtf.Shape([mtf.Dimension("cores", 1)])
    assert space(AllReduce(("cores",)), (8, 12), mesh=alone) == 0


LAYERS, BATCH, WIDTH = mtf.Dimension("layers", 16), mtf.Dimension("batch", 8), mtf.Dimension("width", 32)
STACK = 16 * 8 * 32 * 4


def stacked(x: mtf.Tensor) -> mtf.Tensor:
    """What 16 iterations carried, one behind the other."""
    _, (every,) = mtf.scan(lambda carried, _: ([mtf.exp(carried[0])], [mtf.exp(carried[0])]), x, [], LAYERS)
    return every


def test_a_stack_is_made_where_it_stays() -> None:
    step = mtf.function(stacked, mtf.PlanMeshImpl("cores:1", ""), inputs={"x": mtf.TensorSpec([BATCH, WIDTH])})
    plan = step.lowering.execution(step._fetches).plan
    part, trips = STACK // 16, 4
    assert peak_memory(plan).total == STACK + 3 * part + trips  # x, what is carried, and what an iteration makes


def test_a_sum_over_iterations_is_one_array_beside_its_term() -> None:
    def summed(x: mtf.Tensor) -> mtf.Tensor:
        one = mtf.zeros(x.mesh, [], tf.int32)
        body = lambda n: [n + 1, mtf.exp(x)]  # noqa: E731
        loop = mtf.while_loop(lambda n: mtf.less(n, 4), body, one, has_accumulators=True, maximum_iterations=4)
        return loop[1]

    step = mtf.function(summed, mtf.PlanMeshImpl("cores:1", ""), inputs={"x": mtf.TensorSpec([BATCH, WIDTH])})
    array = 4 * 8 * 32
    assert 3 * array <= step.report().memory.peak < 3 * array + 64  # x, the sum and a term; a few scalars
