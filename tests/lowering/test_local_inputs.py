"""Which part of what a program is fed each process needs: its own, whatever the program does with it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.local_inputs import input_slices
from meshtf.planning.plan import Plan
from meshtf.testing import interpret

IDS = {"ids": mtf.TensorSpec("batch:4 length:6", tf.int32)}
HALVES = [slice(0, 2), slice(2, 4)]


def rows_of_processes(plan: Plan, number: int, name: str = "ids") -> list[slice]:
    """The rows of an input that each of so many processes reads."""
    cores = np.array_split(np.arange(plan.mesh_shape.size), number)
    return [input_slices(plan, own.tolist())[name][0] for own in cores]


def with_constants(ids: mtf.Tensor) -> mtf.Tensor:
    """A sum of ids, with an array of more elements than the batch has rows."""
    rates = mtf.import_tf_tensor(ids.mesh, np.arange(16, dtype=np.float32), "d_model:16")
    return mtf.reduce_sum(mtf.cast(ids, tf.float32) * rates)


@pytest.mark.parametrize("number", [None, 2])
def test_arrays_that_the_program_was_built_with_are_no_inputs(number: int | None) -> None:
    plan = mtf.testing.plan(with_constants, IDS, "rows:2", "batch:rows", num_processes=number)
    assert len(plan.feeds) == 2
    assert input_slices(plan, [1]) == {"ids": (slice(2, 4), slice(0, 6))}


def renamed(ids: mtf.Tensor) -> mtf.Tensor:
    """As attention compares each token with all others."""
    return mtf.reduce_sum(mtf.to_int32(mtf.equal(ids, mtf.rename_dimension(ids, "length", "memory_length"))))


def shifted(ids: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(ids * mtf.shift(ids, 1, "length", wrap=False))


def reversed_rows(ids: mtf.Tensor) -> mtf.Tensor:
    """Each row times another one, which may be of another process."""
    return mtf.reduce_sum(ids * mtf.reverse(ids, "batch"))


def whole(ids: mtf.Tensor) -> mtf.Tensor:
    return mtf.replicate(ids)


@pytest.mark.parametrize("program", [renamed, shifted, reversed_rows, whole])
@pytest.mark.parametrize(("mesh_shape", "layout"), [
    ("rows:2", "batch:rows"),
    ("rows:2;cols:2", "batch:rows;length:cols"),
    ("rows:2;cols:2", "batch:rows+cols"),
])  # fmt: skip
def test_a_process_reads_its_own_rows_alone(
    program: Callable[[mtf.Tensor], mtf.Tensor], mesh_shape: str, layout: str
) -> None:
    plan = mtf.testing.plan(program, IDS, mesh_shape, layout, num_processes=2)
    assert rows_of_processes(plan, 2) == HALVES
    ids = np.arange(24, dtype=np.int32).reshape(4, 6)
    found = interpret(program, {"ids": ("batch:4 length:6", ids)}, mesh_shape, layout, num_processes=2)
    alone = interpret(program, {"ids": ("batch:4 length:6", ids)}, "rows:1")
    np.testing.assert_array_equal(found.results, alone.results)


def test_rows_that_do_not_divide() -> None:
    """Six rows on four cores: two on each of the first three, and padding on the last."""
    specs = {"ids": mtf.TensorSpec("batch:6 length:6", tf.int32)}
    plan = mtf.testing.plan(renamed, specs, "rows:4", "batch:rows", num_processes=2)
    assert rows_of_processes(plan, 2) == [slice(0, 4), slice(4, 6)]
    plan = mtf.testing.plan(renamed, specs, "rows:4", "batch:rows", num_processes=4)
    assert rows_of_processes(plan, 4) == [slice(0, 2), slice(2, 4), slice(4, 6), slice(6, 6)]


def test_parts_apart_are_read_from_the_first_to_the_last() -> None:
    """Blocks 0 and 2 of four are the first process's, 1 and 3 the second's."""
    plan = mtf.testing.plan(renamed, IDS, "rows:2;cols:2", "batch:cols+rows", num_processes=2)
    assert rows_of_processes(plan, 2) == [slice(0, 3), slice(1, 4)]


def test_all_is_read_where_the_layout_splits_nothing_over_processes() -> None:
    plan = mtf.testing.plan(renamed, IDS, "rows:2;cols:2", "batch:cols", num_processes=2)
    assert rows_of_processes(plan, 2) == [slice(0, 4)] * 2
