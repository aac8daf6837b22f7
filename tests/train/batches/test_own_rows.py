from __future__ import annotations

import types

import pytest

import meshtf as mtf
from meshtf.train.batches import own_rows as own_rows_module
from meshtf.train.batches.own_rows import CountedRows, counted_rows, own_rows, rows_read

BATCH = mtf.Dimension("batch", 8)


@pytest.mark.parametrize(("slices", "expected"), [
    ({"x": (slice(0, 4), slice(0, 9)), "y": (slice(0, 4),)}, slice(0, 4)),
    ({"x": (slice(4, 6), slice(3, 6)), "y": (slice(5, 8),)}, slice(4, 8)),
    ({"x": (slice(4, 8),), "whole": (slice(0, 8),)}, slice(0, 8)),
    ({"x": (slice(4, 8),), "unread": (slice(0, 0),)}, slice(4, 8)),
    ({"padding": (slice(8, 8), slice(0, 9))}, slice(0, 0)),
    ({}, slice(0, 0)),
])  # fmt: skip
def test_the_rows_that_some_input_needs(slices: dict[str, tuple[slice, ...]], expected: slice) -> None:
    assert rows_read(slices) == expected


@pytest.mark.parametrize(("everybody", "counted"), [
    ([slice(0, 4), slice(4, 8)], [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ([slice(0, 4), slice(0, 4), slice(4, 8), slice(4, 8)], [[0, 1, 2, 3], [], [4, 5, 6, 7], []]),
    ([slice(2, 5), slice(0, 8)], [[2, 3, 4], [0, 1, 5, 6, 7]]),
])  # fmt: skip
def test_each_row_is_counted_by_one_process(everybody: list[slice], counted: list[list[int]]) -> None:
    assert [counted_rows(everybody, process).tolist() for process in range(len(everybody))] == counted


@pytest.mark.parametrize("is_launched", [False, True])
def test_alone_all_rows_are_made_and_counted(is_launched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one process was launched as a cluster of itself, which then meets nobody."""
    cluster = types.SimpleNamespace(process_index=0, num_processes=1) if is_launched else None
    monkeypatch.setattr(own_rows_module, "collective_runtime", lambda: types.SimpleNamespace(cluster=cluster))
    inputs = {"x": mtf.TensorSpec([BATCH])}
    step = mtf.function(lambda x: mtf.reduce_sum(x), mtf.SpmdMeshImpl("all:2", "batch:all"), inputs)
    counted = CountedRows.of(step, BATCH)
    assert (own_rows(step, BATCH), counted.rows, counted.summed(3)) == (slice(0, 8), slice(0, 8), 3)
