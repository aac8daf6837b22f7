"""Where sums are done: no other placement costs less, of all that there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.graph.operation import Operation
from meshtf.layout import LayoutRules, TensorLayout
from meshtf.lowering.make_plan import needed
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Collective, Compute, Plan
from meshtf.planning.planner import Planner
from meshtf.planning.stored_variables import StoredVariable
from meshtf.testing import assert_close, interpret

pytestmark = pytest.mark.quick

MESH_SHAPE = mtf.convert_to_shape("rows:2;cols:2")
_MASK_SHARE = 16  # a mask costs one sixteenth of sending what it masks


class NoVariables:
    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        raise AssertionError("these programs have none")


def random_graph(rng: random.Random) -> list[mtf.Tensor]:
    """A few contractions over a split dimension, linear operations on them, and nonlinear ones at the ends."""
    mesh = mtf.Mesh(mtf.Graph("sums"))
    m, n, k = (mtf.Dimension(name, size) for name, size in (("m", 8), ("n", 4), ("k", 4)))
    with mesh.graph:
        inputs = [mtf.placeholder(mesh, [m, k], name="x"), mtf.placeholder(mesh, [k, n], name="w")]
        tensors = [mtf.einsum(inputs, output_shape=[m, n])]
        tensors.append(rng.choice([mtf.einsum(inputs, output_shape=[m, n]), mtf.placeholder(mesh, [m, n], name="y")]))
        for _ in range(rng.randint(2, 5)):
            tensors.append(_linear(rng, rng.choice(tensors), rng.choice(tensors)))
        ends = [x for x in tensors[2:] if rng.random() < 0.4] or tensors[-1:]
        return [mtf.tanh(x) if rng.random() < 0.7 else x for x in ends]


def _linear(rng: random.Random, x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
    kind = rng.randrange(6)
    if kind == 0 and x.shape.ndims:
        return mtf.reduce_sum(x, reduced_dim=rng.choice(x.shape.dims))
    if kind == 1:
        return mtf.with_layout(x, None)
    if kind == 2:
        return 2.0 * x
    return x + y if kind < 5 else x - y


def plan(
    pending: PendingSums, operations: Sequence[Operation], fetches: Sequence[mtf.Tensor], table: LayoutTable
) -> Plan:
    planner = Planner(table, pending, NoVariables())
    for operation in operations:
        planner.lower(operation)
    return planner.plan(fetches)


def cost(plan: Plan) -> int:
    """What is sent, and for each mask a sixteenth of what sending its tensor costs."""
    sent = sum(
        i.step.bytes_sent(i.input.slice_bytes, MESH_SHAPE) for i in plan.instructions if isinstance(i, Collective)
    )
    masks = [i.inputs[0] for i in plan.instructions if isinstance(i, Compute) and i.kind == "first term"]
    return sent + sum(max(1, value.slice_bytes // _MASK_SHARE) for value in masks)


@pytest.mark.parametrize("layout", ["k:rows", "k:rows+cols", "k:rows;m:cols", "k:rows;n:cols"])
def test_no_placement_costs_less(layout: str) -> None:
    rng = random.Random(layout)
    for _ in range(25):
        fetches = random_graph(rng)
        table = LayoutTable(MESH_SHAPE, mtf.convert_to_layout_rules(layout))
        table.resolve(fetches[0].graph.operations)
        operations = needed([x.operation for x in fetches])
        pending = PendingSums(operations, fetches, table)
        chosen = cost(plan(pending, operations, fetches, table))
        passing = [o for o in operations if pending.is_able_to_pass(o)]
        for size in range(len(passing) + 1):
            for placement in itertools.combinations(passing, size):
                pending._passing = set(placement)
                other = cost(plan(pending, operations, fetches, table))
                assert chosen <= other, f"{chosen}, and {other} where {placement} pass sums on: {operations}"


def test_of_equal_placements_the_latest_is_taken() -> None:
    """A chain of scalings: the sum is done after the last, where others might still join."""
    mesh = mtf.Mesh(mtf.Graph("chain"))
    k, m = mtf.Dimension("k", 4), mtf.Dimension("m", 8)
    with mesh.graph:
        x = mtf.placeholder(mesh, [k, m], name="x")
        y = mtf.tanh(-(2.0 * mtf.reduce_sum(x, reduced_dim=k)))
    table = LayoutTable(MESH_SHAPE, LayoutRules({"k": "rows"}))
    table.resolve(mesh.graph.operations)
    operations = needed([y.operation])
    found = plan(PendingSums(operations, [y], table), operations, [y], table)
    (reduction,) = found.collectives
    assert reduction.operation.name == "negative"


def test_sums_over_two_axes_are_one_where_that_sends_less() -> None:
    """After a sum over a dimension that is as long as it has slices, both are as large as one of them was."""
    mesh = mtf.Mesh(mtf.Graph("two axes"))
    k, n, m = mtf.Dimension("k", 4), mtf.Dimension("n", 2), mtf.Dimension("m", 8)
    with mesh.graph:
        x = mtf.placeholder(mesh, [k, n, m], name="x")
        y = mtf.tanh(mtf.reduce_sum(mtf.reduce_sum(x, reduced_dim=k), reduced_dim=n))
    table = LayoutTable(MESH_SHAPE, LayoutRules({"k": "rows", "n": "cols"}))
    table.resolve(mesh.graph.operations)
    operations = needed([y.operation])
    found = plan(PendingSums(operations, [y], table), operations, [y], table)
    (reduction,) = found.collectives
    assert reduction.step.bytes_sent(reduction.input.slice_bytes, MESH_SHAPE) == 1.5 * 8 * tf.float32.size


def test_a_pending_scalar_beside_a_tensor_split_over_the_same_axis_is_reduced_first() -> None:
    """Cores that hold different slices hold no terms of one sum: the scalar cannot stay pending in their sum."""
    a, b = mtf.Dimension("a", 8), mtf.Dimension("b", 8)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        mean = mtf.reduce_mean(x)
        products = mtf.einsum([x, mtf.rename_dimension(x, "a", "e")], output_shape=[b, a, ("e", 8)])
        powers = mtf.einsum([mean, x, x, x], output_shape=[b, a])
        total = mtf.reduce_sum(products * mtf.range(x.mesh, a, tf.float32)) + mtf.reduce_sum(powers)
        return mtf.gradients(total, x)[0]

    x = np.arange(8, dtype=np.float32) - 3
    inputs = {"x": ([a], x)}
    expected = interpret(program, inputs, "all:1").results
    assert_close(interpret(program, inputs, "all:8", "a:all").results, expected, terms=(8, 8, 8))


def test_a_sum_that_is_fetched_and_read_in_another_layout_is_done_once() -> None:
    """In its own layout: scattered for the reader, it would be gathered or added up again for the fetch."""
    k, m = mtf.Dimension("k", 4), mtf.Dimension("m", 8)

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        total = mtf.reduce_sum(x, reduced_dim=k)
        return [total, mtf.maximum(total, mtf.with_layout(y, "m:rows"))]

    x, y = np.arange(32, dtype=np.float32).reshape(4, 8), np.full(8, 50, np.float32)
    done = interpret(program, {"x": ([k, m], x), "y": ([m], y)}, "rows:2;cols:2", "k:rows;m:cols")
    assert [collective.step.kind for collective in done.plan.collectives] == ["all_reduce", "permute"]
    np.testing.assert_array_equal(done.results[1], np.maximum(x.sum(0), y))
