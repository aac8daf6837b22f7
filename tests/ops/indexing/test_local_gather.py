"""Rows by index, and sums of rows by index, against loops; an index outside reads zeros and adds nothing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from meshtf.dimension import Dimension, convert_to_shape
from meshtf.lowering.interpreter import KnownCore
from meshtf.ops.indexing.local_gather import LookupShapes, rows_at, shifted, sums_at
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)
CASES = [((), (6,), (3,)), ((), (2, 3), ()), ((), (), (3, 2)), ((4,), (6,), (3,)), ((2, 2), (3,), ()), ((4,), (), (3,))]
"""Sizes of batch, free and rest."""


@pytest.mark.parametrize(("batch", "free", "rest"), CASES)
def test_rows_and_sums(batch: tuple[int, ...], free: tuple[int, ...], rest: tuple[int, ...]) -> None:
    n = 5
    table = RNG.integers(1, 9, (*batch, n, *rest))
    updates = RNG.integers(1, 9, (*batch, *free, *rest))
    indices = np.asarray(RNG.integers(-2, n + 2, (*batch, *free)), np.int32)
    rows, sums = np.zeros_like(updates), np.zeros_like(table)
    for where in np.ndindex(indices.shape):
        place = (*where[: len(batch)], indices[where])
        if 0 <= indices[where] < n:
            rows[where] = table[place]
            sums[place] += updates[where]
    np.testing.assert_array_equal(rows_at(tf.constant(table), tf.constant(indices), len(batch)), rows)
    np.testing.assert_array_equal(sums_at(tf.constant(updates), tf.constant(indices), len(batch), n), sums)


def test_nothing_to_look_up_in() -> None:
    rows = rows_at(tf.zeros([0, 3]), tf.constant([0, 1]), 0)
    np.testing.assert_array_equal(rows, np.zeros([2, 3]))


@pytest.mark.parametrize(("n", "rest"), [(4, 0), (0, 3)])
def test_nothing_to_add_to(n: int, rest: int) -> None:
    sums = sums_at(tf.ones([2, rest]), tf.constant([0, 1]), 0, n)
    np.testing.assert_array_equal(sums, np.zeros([n, rest]))


def test_many_small_terms_are_not_lost() -> None:
    """A sum of ones in float16 ends at 2048, to which 1 adds nothing there."""
    count = 4096
    found = sums_at(tf.ones([count], tf.float16), tf.zeros([count], tf.int32), 0, 1)
    assert found.dtype == tf.float16
    assert found.numpy().tolist() == [count]


def test_the_orders_of_dimensions() -> None:
    table, indices = convert_to_shape("d:3 vocab:5 batch:4"), convert_to_shape("length:6 batch:4")
    found = LookupShapes.of(table, indices, Dimension("vocab", 5))
    wanted = ("batch:4", "batch:4 vocab:5 d:3", "batch:4 length:6", "batch:4 length:6 d:3")
    assert (found.batch, found.table, found.indices, found.rows) == tuple(map(convert_to_shape, wanted))


def test_indices_into_a_cores_part() -> None:
    plan = Plan(convert_to_shape("rows:2;cols:3"), (), (), (), False)
    core, indices = KnownCore(plan, 5), tf.constant([9, 10, 11], tf.int64)
    assert shifted(core, indices, ("cols", "rows"), 2).numpy().tolist() == [-1, 0, 1]
    assert shifted(core, indices, (), 2) is indices
