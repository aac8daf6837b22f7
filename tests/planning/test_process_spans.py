"""How meshes lie over processes, and the bytes that cross between them: counted by hand."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layout import TensorLayout
from meshtf.lowering.report import accounting
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.core_positions import groups_over
from meshtf.planning.process_spans import (
    ProcessSpan,
    by_process,
    crossing_axes,
    laid_over,
    span_of,
    split_over_processes,
)

ROWS_COLS = mtf.convert_to_shape("rows:4;cols:2")
BY_ROWS = laid_over(ROWS_COLS, 2, ())  # rows 0 and 1 in the first process, all cols within
BY_COLS = laid_over(ROWS_COLS, 2, ("cols",))


def test_axes_are_laid_over_processes_in_order_or_as_told() -> None:
    assert BY_ROWS == (0, 0, 0, 0, 1, 1, 1, 1)
    assert BY_COLS == (0, 1, 0, 1, 0, 1, 0, 1)
    assert crossing_axes(("rows", "cols"), ROWS_COLS, BY_ROWS) == ("rows",)
    assert crossing_axes(("rows", "cols"), ROWS_COLS, BY_COLS) == ("cols",)
    assert crossing_axes(("rows", "cols"), ROWS_COLS, ()) == ()


@pytest.mark.parametrize(("axes", "processes", "expected"), [
    ((("rows",), ("cols",)), BY_ROWS, (("rows",), ())),
    ((("rows",), ("cols",)), BY_COLS, ((), ("cols",))),
    ((("cols", "rows"), ()), BY_ROWS, (("cols", "rows"), ())),
    ((("rows",), ("cols",)), (), ((), ())),
    (((), ()), BY_ROWS, ((), ())),
])  # fmt: skip
def test_what_is_split_over_processes_alone(
    axes: tuple[tuple[str, ...], ...], processes: tuple[int, ...], expected: tuple[tuple[str, ...], ...]
) -> None:
    assert split_over_processes(TensorLayout(axes), ROWS_COLS, processes) == TensorLayout(expected)


@pytest.mark.parametrize(
    ("axes", "processes", "span"),
    [
        (("rows",), BY_ROWS, ProcessSpan(processes=2, members=2, groups_of_each=2)),
        (("cols",), BY_ROWS, None),
        (("rows", "cols"), BY_ROWS, ProcessSpan(2, 4, 1)),
        (("cols",), BY_COLS, ProcessSpan(2, 1, 4)),
        (("rows",), (0, 0, 0, 0, 0, 0, 1, 1), None),  # three members and one
        (("rows",), (0, 1, 0, 1, 2, 3, 2, 3), ProcessSpan(2, 2, 1)),
    ],
)
def test_spans(axes: tuple[str, ...], processes: tuple[int, ...], span: ProcessSpan | None) -> None:
    assert span_of(groups_over(axes, ROWS_COLS), processes) == span


def every_mesh() -> Iterator[tuple[mtf.Shape, int, tuple[str, ...]]]:
    """Meshes of up to three axes, over every number of processes that can share them, in two orders of axes."""
    for sizes in itertools.product((2, 3, 4, 6), (1, 2, 3, 6), (1, 2, 3)):
        shape = mtf.Shape([mtf.Dimension(name, size) for name, size in zip("abc", sizes, strict=True)])
        for processes in range(1, shape.size + 1):
            if shape.size % processes == 0:
                yield from ((shape, processes, outermost) for outermost in ((), ("c", "b")))


def test_groups_of_every_mesh_lie_evenly_over_processes() -> None:
    """So that collectives go in stages wherever they cross processes, unless devices were given one by one."""
    subsets = [axes for n in (1, 2, 3) for axes in itertools.combinations("abc", n)]
    for shape, processes, outermost in every_mesh():
        process_of_core = laid_over(shape, processes, outermost)
        assert np.bincount(process_of_core).tolist() == [shape.size // processes] * processes
        for axes in subsets:
            crosses = bool(crossing_axes(axes, shape, process_of_core))
            assert crosses == (span_of(groups_over(axes, shape), process_of_core) is not None)


def test_a_process_has_a_block_of_the_mesh() -> None:
    """In the order of cores each would have three in a row, of which two are of one column and one of the next."""
    columns = mtf.convert_to_shape("rows:3;cols:2")
    assert laid_over(columns, 2, ()) == (0, 1, 0, 1, 0, 1)
    assert laid_over(mtf.convert_to_shape("rows:6;cols:2"), 4, ()) == (0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3)


def test_members_of_a_process_stand_side_by_side() -> None:
    groups = np.array([[0, 1, 2, 3], [4, 5, 6, 7]])
    processes = (1, 0, 1, 0, 0, 0, 1, 1)
    span = span_of(groups, processes)
    assert span is not None
    assert by_process(groups, processes, span).tolist() == [[0, 2, 1, 3], [0, 1, 2, 3]]


N = 960
"""Bytes of each core's slice, which divide evenly."""


@pytest.mark.parametrize(
    ("step", "processes", "sent"),
    [
        # An allreduce of n bytes over p processes sends 2 (p-1)/p n from each, for each of its groups there.
        (AllReduce(("rows", "cols")), BY_ROWS, 2 * N // 2),
        (AllReduce(("rows", "cols")), laid_over(ROWS_COLS, 4, ()), 2 * 3 * N // 4),
        (AllReduce(("rows", "cols")), laid_over(ROWS_COLS, 8, ()), 2 * 7 * N // 8),
        (AllReduce(("rows",)), BY_ROWS, 2 * (2 * N // 2)),
        (AllReduce(("cols",)), BY_ROWS, 0),
        (AllGather(("rows",), 0), BY_ROWS, 4 * N),  # each process's four slices, once
        (AllGather(("rows", "cols"), 0), laid_over(ROWS_COLS, 4, ()), 2 * N * 3),
        (ReduceScatter(("rows", "cols"), 0), BY_ROWS, N // 2),
        (ReduceScatter(("rows",), 0), BY_ROWS, 2 * (N // 2)),
        (AllToAll(("rows", "cols"), 0, 1), BY_ROWS, 4 * N // 2),
        (AllToAll(("cols",), 0, 1), BY_COLS, 4 * N // 2),
        (Permute(("rows",), (2, 3, 4, 5, 6, 7, 0, 1)), BY_ROWS, 2 * N),
        # Three members in one process and one in the other: each by itself, in a ring or to each.
        (AllReduce(("rows",)), (0, 0, 0, 0, 0, 0, 1, 1), 2 * (2 * 3 * N // 4)),
        (AllToAll(("rows",), 0, 1), (0, 0, 0, 0, 0, 0, 1, 1), 2 * 3 * N // 4),
    ],
)
def test_bytes_between_processes(step: CollectiveStep, processes: tuple[int, ...], sent: int) -> None:
    assert step.bytes_between_processes(N, ROWS_COLS, processes) == sent
    assert step.bytes_between_processes(N, ROWS_COLS, ()) == 0


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 4), (4, 2), (8, 1)])
def test_what_leaves_a_process_whatever_its_cores(p: int, m: int) -> None:
    """Over all cores of p processes of m cores each, of n bytes on each core."""
    shape = mtf.convert_to_shape(f"processes:{p};cores:{m}")
    axes, over = ("processes", "cores"), laid_over(shape, p, ())
    sent = {
        step.kind: step.bytes_between_processes(N, shape, over)
        for step in (AllReduce(axes), ReduceScatter(axes, 0), AllGather(axes, 0), AllToAll(axes, 0, 1))
    }
    assert sent == {
        "all_reduce": 2 * N * (p - 1) // p,
        "reduce_scatter": N * (p - 1) // p,
        "all_gather": N * m * (p - 1),
        "all_to_all": N * m * (p - 1) // p,
    }


def test_the_report_says_what_crosses_processes() -> None:
    batch, d_model, d_ff = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 32)

    def train_step(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        y = mtf.layers.dense(mtf.layers.dense(x, [d_ff], name="in"), [d_model], name="out")
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss, y

    pod = mtf.PlanMeshImpl("data:4;model:2", "batch:data;d_ff:model", num_processes=2)
    report = mtf.function(train_step, pod, inputs={"x": mtf.TensorSpec([batch, d_model])}).report()
    assert report.processes == 2
    over_data = [c for c in report.collectives if c.axes == ("data",)]
    assert all(c.process_axes == ("data",) for c in over_data)
    assert all("across 2 processes" in c.stages for c in over_data)
    for c in report.collectives:
        if c.axes == ("model",):
            assert (c.process_axes, c.bytes_between_processes, c.stages) == ((), 0, "")
    gathered = [c for c in over_data if c.kind == "all_gather"]
    # What the program returns is brought to every process: each sends its half of [batch d_model], of both columns.
    assert [c.bytes_between_processes for c in gathered] == [2 * batch.size // 2 * d_model.size * 4]
    assert report.bytes_between_processes == sum(c.bytes_between_processes for c in over_data) > 0
    text = report.text()
    assert "8 cores of 2 processes" in text
    assert "communication between processes" in text
    assert "within each process (2 cores), across 2 processes, within" in text


def test_the_report_says_why_a_collective_does_not_go_in_stages() -> None:
    """Devices that are given one by one may lie so that a group has three cores in one process and one in the other."""
    x = mtf.Dimension("x", 8)
    inputs = {"x": mtf.TensorSpec([x])}
    plan = mtf.testing.plan(lambda x: mtf.reduce_sum(x), inputs, "rows:4", "x:rows")
    given = dataclasses.replace(plan, process_of_core=(0, 0, 0, 1))
    (collective,) = given.collectives
    assert accounting.stages(collective, given) == "each core by itself, as processes have unequal parts of its groups"
