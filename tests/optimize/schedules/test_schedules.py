from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.optimize.interpreted_training import INPUTS, InterpretedTraining, perceptron_batches, perceptron_step

STEPS = mtf.Dimension("steps", 60)


def values(*schedules: optimize.Schedule) -> list[np.ndarray]:
    """Each schedule at the steps 0, 1, ..., 59: it is elementwise, so that all are computed at once."""

    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [schedule(mtf.cast(mtf.range(mesh, STEPS), "float32")) for schedule in schedules]

    return mtf.testing.interpret(program, {}, "all:1").results


SCHEDULES: list[tuple[optimize.Schedule, Callable[[int], float]]] = [
    (optimize.ConstantSchedule(0.3), lambda s: 0.3),
    (optimize.LinearSchedule(0.1, 0.5, 20), lambda s: 0.1 + 0.4 * min(s / 20, 1)),
    (optimize.LinearSchedule(0.5, 0.1, 20), lambda s: 0.5 - 0.4 * min(s / 20, 1)),
    (optimize.PolynomialSchedule(0.5, 40, 0.1, 3.0), lambda s: 0.1 + 0.4 * (1 - min(s / 40, 1)) ** 3),
    (optimize.CosineSchedule(0.5, 40, 0.1), lambda s: 0.1 + 0.4 * (1 + math.cos(math.pi * min(s / 40, 1))) / 2),
    (optimize.InverseSquareRootSchedule(2.0, 9), lambda s: 2 / math.sqrt(max(s, 9))),
    (optimize.WarmUpSchedule(1e1, 0.4, start=0.2), lambda s: 0.2 + 0.2 * min(s / 10, 1)),
    (
        optimize.WarmUpSchedule(10, optimize.CosineSchedule(0.4, 40)),
        lambda s: 0.4 * s / 10 if s < 10 else 0.4 * (1 + math.cos(math.pi * min((s - 10) / 40, 1))) / 2,
    ),
    (optimize.PiecewiseSchedule([10, 30], [0.5, 0.25, 0.125]), lambda s: 0.5 if s < 10 else 0.25 if s < 30 else 0.125),
    (
        optimize.PiecewiseSchedule([10], [0.5, optimize.LinearSchedule(0.5, 0.0, 20)]),
        lambda s: 0.5 if s < 10 else max(0.5 * (30 - s) / 20, 0),
    ),
    (
        optimize.ProductSchedule([0.5, optimize.LinearSchedule(0, 1, 10), optimize.InverseSquareRootSchedule(1.0, 10)]),
        lambda s: 0.5 * min(s / 10, 1) / math.sqrt(max(s, 10)),
    ),
    (
        optimize.NoamSchedule(50, 9, 0.2, multiplier=3.0, offset=2.0),
        lambda s: 3 / math.sqrt(max(s - 2, 9)) * min(1, max(0, (50 - s) / 10)),
    ),
    (optimize.NoamSchedule(50, 9, 0.0, multiplier=3.0), lambda s: 3 / math.sqrt(max(s, 9))),
    (optimize.OffsetSchedule(30, optimize.LinearSchedule(0.5, 0.1, 40)), lambda s: 0.5 - 0.4 * min((s + 30) / 40, 1)),
    (
        optimize.SlantedTriangularSchedule(45.0, 0.2, 16, 0.1, start_step=5.0),
        lambda s: 0.1 * (1 + 15 * triangle(max(s - 5, 0), cut=8, total=40)) / 16,
    ),
]


def triangle(step: int, cut: int, total: int) -> float:
    """Up to 1 at `cut`, and down to 0 at the end."""
    return step / cut if step < cut else max(0.0, (total - step) / (total - cut))


def test_schedules_follow_their_formulas() -> None:
    for (schedule, formula), actual in zip(SCHEDULES, values(*(s for s, _ in SCHEDULES)), strict=True):
        expected = [formula(step) for step in range(STEPS.size)]
        assert_close(actual, expected, terms=4 * FUNCTION_TERMS, what=str(schedule))


def test_the_first_step_is_step_0() -> None:
    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [("d", 4)], initializer=mtf.zeros)
        optimize.SgdOptimizer(optimize.PiecewiseSchedule([1, 2], [1.0, 10.0, 100.0])).minimize(mtf.reduce_sum(w))
        return mtf.reduce_sum(w)

    training = InterpretedTraining(step, {}, "all:1", "")
    assert [training.step() for _ in range(4)] == [0.0, -4.0, -44.0, -444.0]


def test_a_resumed_run_continues_the_schedule() -> None:
    fn = perceptron_step(optimize.AdamWOptimizer(optimize.WarmUpSchedule(4, optimize.CosineSchedule(0.1, 6))))
    batches = perceptron_batches(8)
    one_run = InterpretedTraining(fn, INPUTS, "all:1", "")
    expected = [one_run.step(**batch) for batch in batches]
    first, second = (InterpretedTraining(fn, INPUTS, "all:1", "") for _ in range(2))
    losses = [first.step(**batch) for batch in batches[:5]]
    for name, value in first.variables.items():
        second[name] = value
    assert losses + [second.step(**batch) for batch in batches[5:]] == expected


def test_the_learning_rate_can_be_fetched_and_is_a_summary() -> None:
    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        w = mtf.get_variable(mesh, "w", [("d", 4)], initializer=mtf.zeros)
        optimize.SgdOptimizer(optimize.LinearSchedule(1.0, 0.0, 4)).minimize(mtf.reduce_sum(w))
        return mtf.reduce_sum(w)

    program = mtf.function(step, mtf.SpmdMeshImpl("all:1", ""))
    rates = []
    for _ in range(3):
        rates.append(float(program.lowering.run("sgd/learning_rate")))
    assert rates == [1.0, 0.75, 0.5]
    assert "sgd/learning_rate" in program.graph.summaries
    assert program.variables["sgd/step"] == 3


def test_a_learning_rate_may_be_a_scalar_of_the_program() -> None:
    def step(rate: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(rate.mesh, "w", [("d", 4)], initializer=mtf.zeros)
        optimize.SgdOptimizer(rate).minimize(mtf.reduce_sum(w))
        return mtf.reduce_sum(w)

    training = InterpretedTraining(step, {"rate": mtf.TensorSpec([])}, "all:2", "d:all")
    for rate in (1.0, 0.5):
        training.step(rate=np.float32(rate))
    np.testing.assert_array_equal(training["w"], np.full(4, -1.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimize.ConstantSchedule(-1.0), r"ConstantSchedule: value must be 0 or more, and is -1\.0"),
        (lambda: optimize.LinearSchedule(0.1, math.nan, 5), r"end must be a number, and is nan; it must be finite"),
        (lambda: optimize.CosineSchedule(0.1, 0), r"CosineSchedule: num_steps must be above 0, and is 0"),
        (
            lambda: optimize.WarmUpSchedule(5, "cosine"),
            r"WarmUpSchedule: then must be a number, or a Schedule, and is 'cosine'",
        ),
        (lambda: optimize.PiecewiseSchedule([5], [1.0]), r"1 boundary needs 2 pieces, but there are 1"),
        (
            lambda: optimize.PiecewiseSchedule([5, 5], [1, 2, 3]),
            r"boundaries must increase from above 0, and are \[5, 5\]",
        ),
        (
            lambda: optimize.PiecewiseSchedule(5, [1, 2]),
            r"PiecewiseSchedule: boundaries must be a list, each a number, and is 5",
        ),
        (
            lambda: optimize.PiecewiseSchedule(["5"], [1, 2]),
            r"boundaries must be a list, each a number, and is \['5'\]",
        ),
        (
            lambda: optimize.PiecewiseSchedule([5], 0.1),
            r"PiecewiseSchedule: pieces must be a list, each a number, or a Schedule, and is 0\.1",
        ),
        (lambda: optimize.ProductSchedule(3), r"ProductSchedule: factors must be a list, .* and is 3"),
        (lambda: optimize.SlantedTriangularSchedule(5), r"goes up for 0 of 5 steps"),
    ],
)
def test_what_a_schedule_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
