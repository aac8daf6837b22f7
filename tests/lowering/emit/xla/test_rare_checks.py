"""Loops that a GPU's host asks rarely whether they go on: results are the same, and no other loop is asked rarely."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.thresholds import ITERATIONS_PER_CHECK, QUICK_ITERATION_BYTES

ROWS = mtf.Dimension("batch", 4)
INPUTS = {"limits": mtf.TensorSpec([ROWS], tf.int32)}
Body = Callable[[mtf.Tensor, mtf.Tensor], list[mtf.Tensor]]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs for virtual GPUs are those for GPUs."""
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", "cuda")


def counting(most: int, *, may_overrun: bool = True) -> Callable[[mtf.Tensor], list[mtf.Tensor]]:
    """Adds up the numbers below each row's limit, until no row goes on."""

    def program(limits: mtf.Tensor) -> list[mtf.Tensor]:
        def goes_on(turn: mtf.Tensor, _: mtf.Tensor) -> mtf.Tensor:
            return mtf.reduce_any(turn < limits)

        def body(turn: mtf.Tensor, sums: mtf.Tensor) -> list[mtf.Tensor]:
            return [turn + 1, sums + mtf.where(turn < limits, turn, 0)]

        start = [mtf.zeros(limits.mesh, [], tf.int32), mtf.zeros(limits.mesh, [ROWS], tf.int32)]
        turns, sums = mtf.while_loop(goes_on, body, start, maximum_iterations=most, may_overrun=may_overrun)
        return [turns, sums]

    return program


def num_loops(step: mtf.Function) -> int:
    hlo = step.hlo()
    assert hlo is not None
    return sum(i.opcode == "while" for c in parsed_hlo(hlo).computations for i in c.instructions)


@pytest.mark.parametrize("most", [3, 13])
def test_the_results_are_those_of_a_loop_that_is_asked_every_time(most: int) -> None:
    """Whether all rows have ended before the first iteration, in the middle of several, or after the greatest number.
    A value that goes on counting shows how many iterations there were."""
    step = mtf.function(counting(most), mtf.GpuMeshImpl("rows:2", "batch:rows"), inputs=INPUTS)
    assert num_loops(step) == 2
    for limits in ([0, 0, 0, 0], [most, 0, 1, 2], [1, 2, 2, 0], [most] * 4):
        turns, sums = step(limits=np.array(limits, np.int32))
        np.testing.assert_array_equal(sums, [n * (n - 1) // 2 for n in limits])
        per_check = min(most, ITERATIONS_PER_CHECK)
        assert turns.numpy() == -(-max(limits) // per_check) * per_check


def _with_gradient(x: mtf.Tensor, *, may_overrun: bool) -> list[mtf.Tensor]:
    (y,) = _loop(lambda y: [2.0 * y], x, may_overrun)
    return [mtf.gradients([y], [x])[0]]


def _with_check(x: mtf.Tensor, *, may_overrun: bool) -> list[mtf.Tensor]:
    ids = mtf.to_int32(x)
    return _loop(lambda y: [y + mtf.to_float(mtf.check_indices(ids, 3))], x, may_overrun)


def _with_variable(x: mtf.Tensor, *, may_overrun: bool) -> list[mtf.Tensor]:
    total = mtf.get_variable(x.mesh, "total", [], initializer=np.zeros([]))
    return _loop(lambda y: [y + mtf.assign_add(total, total)], x, may_overrun)


def _with_sum(x: mtf.Tensor, *, may_overrun: bool) -> list[mtf.Tensor]:
    return _loop(lambda y: [y + 1.0, y], x, may_overrun, has_accumulators=True)


def _with_much_to_read(x: mtf.Tensor, *, may_overrun: bool) -> list[mtf.Tensor]:
    large = mtf.zeros(x.mesh, [mtf.Dimension("large", QUICK_ITERATION_BYTES // 4)])
    return _loop(lambda y: [y + mtf.reduce_sum(large)], x, may_overrun)


def _loop(body: Callable[..., list[mtf.Tensor]], x: mtf.Tensor, may_overrun: bool, **options: bool) -> list[mtf.Tensor]:
    def is_small(y: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_sum(y) < 9.0

    return mtf.while_loop(is_small, body, x, maximum_iterations=40, may_overrun=may_overrun, **options)


@pytest.mark.parametrize("kind", [_with_gradient, _with_check, _with_variable, _with_sum, _with_much_to_read])
def test_other_loops_are_asked_every_time(kind: Callable[..., list[mtf.Tensor]]) -> None:
    """Loops whose further iterations would be seen or take long have the program of those that promise nothing."""
    assert hlo_of(kind, may_overrun=True) == hlo_of(kind, may_overrun=False)


def test_other_platforms_ask_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [counting(9, may_overrun=x) for x in (True, False)]
    on_gpus = [mtf.function(program, mtf.GpuMeshImpl("rows:1", ""), inputs=INPUTS) for program in both]
    assert list(map(num_loops, on_gpus)) == [2, 1]
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", "")
    elsewhere = mtf.function(counting(9), mtf.GpuMeshImpl("rows:1", ""), inputs=INPUTS)
    assert elsewhere.hlo() == on_gpus[1].hlo()


def hlo_of(kind: Callable[..., list[mtf.Tensor]], *, may_overrun: bool) -> bytes:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return kind(x, may_overrun=may_overrun)

    hlo = mtf.function(program, mtf.GpuMeshImpl("rows:1", ""), inputs={"x": mtf.TensorSpec([ROWS])}).hlo()
    assert hlo is not None
    return hlo
