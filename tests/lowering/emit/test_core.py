"""What local work may ask of a core whose coordinates are known when the program runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.core import TracedCore, known_coordinates
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan
from meshtf.testing import plan

pytestmark = pytest.mark.quick


def plan_of_mesh() -> Plan:
    return plan(lambda mesh: mtf.ones(mesh, "x:1"), {}, "rows:2;one:1;cols:3")


def test_positions_and_begins_are_those_of_its_coordinates() -> None:
    own = plan_of_mesh()
    shape = own.mesh_shape
    every = [axes for n in range(3) for axes in itertools.permutations(["rows", "cols"], n)]

    @tf.function(autograph=False)
    def asked(coordinates: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
        core = TracedCore(own, coordinates)
        begin = core.begin(3, ((0, ("rows",), 5), (2, ("cols", "rows"), 4), (2, ("rows",), 1)))
        return [core.coordinate(axes) for axes in every], begin

    for number in range(shape.size):
        coordinates = core_positions.coordinates(number, shape)
        positions, begin = asked(tf.constant(list(coordinates.values()), tf.int32))
        assert [int(p) for p in positions] == [core_positions.position(number, axes, shape) for axes in every]
        row, column = coordinates["rows"], coordinates["cols"]
        np.testing.assert_array_equal(begin, [5 * row, 0, 4 * (2 * column + row) + row])
    assert asked.experimental_get_tracing_count() == 1


def test_what_is_asked_again_is_there_and_stays_inside_where_it_was_made() -> None:
    with tf.Graph().as_default() as graph:
        core, x = TracedCore(plan_of_mesh(), {"rows": tf.constant(1), "cols": tf.constant(2)}), tf.zeros([2, 3])
        outside = core.transposed(x, [1, 0])
        assert core.transposed(x, (1, 0)) is outside
        assert core.reshaped(x, [2, 3]) is x
        assert core.reshaped(x, [6]).shape == [6]
        inner = core.inside()
        assert inner.transposed(x, [1, 0]) is outside
        made = inner.coordinate(("rows", "cols")), inner.transposed(x, [0, 1])
        assert core.coordinate(("rows", "cols")) is not made[0]
        assert core.transposed(x, [0, 1]) is not made[1]
        assert len([o for o in graph.get_operations() if o.type == "Transpose"]) == 3


def test_a_known_coordinate_may_be_first_used_inside_a_loop() -> None:
    own = plan_of_mesh()

    @tf.function(autograph=False)
    def asked() -> tf.Tensor:
        core = TracedCore(own, known_coordinates(5, own))
        (total,) = tf.while_loop(lambda n: n < 5, lambda n: [n + core.inside().coordinate(("rows", "cols"))], [0])
        return total + core.coordinate(("rows",))

    assert asked() == 5 + 1


def test_a_compiler_multiplies_in_the_type_that_it_is_given() -> None:
    """And a CPU in one of which it rounds sums of products once, to nearest."""
    core = TracedCore(plan_of_mesh(), {}, is_cpu=True)
    assert core.product_dtype(tf.float32) == tf.float32
    assert core.inside(is_cpu=False).product_dtype(tf.bfloat16) == tf.bfloat16
    assert core.inside().product_dtype(tf.bfloat16) == core.product_dtype(tf.bfloat16)
    assert not core.convolves_bfloat16
    assert core.inside(is_cpu=False).convolves_bfloat16


def test_a_cpu_adds_many_rows_in_parts() -> None:
    core, rows = TracedCore(plan_of_mesh(), {}, is_cpu=True), tf.fill([1 << 20, 2], 1.1)
    np.testing.assert_allclose(core.summed(rows, [0]), [1.1 * 2**20] * 2, rtol=2**-13)
    traced = tf.function(lambda x: core.inside(is_cpu=False).summed(x, [0])).get_concrete_function(rows)
    assert [o.type for o in traced.graph.get_operations()].count("Sum") == 1
