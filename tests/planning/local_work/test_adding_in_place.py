"""A term is added to one part of a tensor, in a new one or where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (2, 0), (2, 1, 0)])
def test_a_term_is_added_to_a_part(axes: tuple[int, ...]) -> None:
    size, core = (2, 3, 4), None
    positions = [size[axis] - 1 for axis in axes]
    term = np.arange(1.0, 25.0, dtype=np.float32)[
        : np.prod([n for i, n in enumerate(size) if i not in axes], dtype=int)
    ]
    term = term.reshape([n for i, n in enumerate(size) if i not in axes])
    expected = np.zeros(size, np.float32)
    expected[tuple(positions[axes.index(i)] if i in axes else slice(None) for i in range(3))] = 2 * term
    add, zeros = AddToPart(size, axes), Zeros(size, tf.float32)
    given: Any = (tf.constant(term), *map(tf.constant, positions))
    apart, in_place = zeros(core), zeros.in_place()  # type: ignore[arg-type]
    for _ in range(2):
        apart, in_place = add(core, apart, *given), add.in_place(in_place, *given)  # type: ignore[arg-type]
    np.testing.assert_array_equal(apart, expected)
    np.testing.assert_array_equal(in_place, expected)


@pytest.mark.parametrize("position", [-1, 1, 3])
def test_nothing_is_added_outside(position: int) -> None:
    size, core, term = (3, 4), None, np.arange(4, dtype=np.float32)
    add: Any = AddToPart(size, (0,), checked=(0,))
    expected = np.zeros(size, np.float32)
    if 0 <= position < 3:
        expected[position] = term
    given = (tf.constant(term), tf.constant([position]))
    np.testing.assert_array_equal(add(core, tf.zeros(size), *given), expected)
    np.testing.assert_array_equal(add.in_place(Zeros(size, tf.float32).in_place(), *given), expected)
