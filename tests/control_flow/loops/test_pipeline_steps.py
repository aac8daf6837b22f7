"""What a scan is told about its steps reaches the report, and does not contradict the scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError

STAGE, STEP, D_MODEL = mtf.Dimension("stage", 4), mtf.Dimension("step", 6), mtf.Dimension("d_model", 8)
USEFUL = np.array([[0 <= step - stage < 3 for stage in range(4)] for step in range(6)])
"""Three micro-batches."""
STEPS = mtf.PipelineSteps(STEP, STAGE, USEFUL, num_microbatches=3)


def shifted(xs: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    y = mtf.shift(mtf.tanh(xs[0] * parts[0]), 1, STAGE, wrap=False)
    return [y], [mtf.reduce_sum(y)]


def piped(steps: mtf.PipelineSteps = STEPS, recompute: str | None = None) -> Any:
    def program(x: mtf.Tensor, scale: mtf.Tensor) -> list[mtf.Tensor]:
        _, (sums,) = mtf.scan(shifted, x, scale, steps, recompute=recompute, name="steps")
        grads = [g for g in mtf.gradients(mtf.reduce_sum(sums), [x, scale]) if g is not None]
        assert len(grads) == 2
        return [sums, *grads]

    return program


def planned(program: Any, layout: str = "stage:stages") -> mtf.Function:
    inputs = {"x": mtf.TensorSpec([STAGE, D_MODEL]), "scale": mtf.TensorSpec([STEP, STAGE])}
    return mtf.function(program, mtf.PlanMeshImpl("stages:4", layout), inputs=inputs)


def test_the_report_has_the_scan_and_its_gradient_as_one_pipeline() -> None:
    (record,) = planned(piped(recompute="nothing")).report().pipelines
    assert (record.operation, record.function, record.axes) == ("steps", "program", ("stages",))
    assert (record.stages, record.microbatches, record.rounds, record.steps) == (4, 3, 1, 6)
    assert (record.bubble, record.times) == (0.5, 2)
    assert record.bytes_per_step == 8 * 4


def test_a_plain_dimension_is_no_pipeline() -> None:
    def program(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
        return mtf.scan(shifted, x, scale, STEP)[1][0]

    assert planned(program).report().pipelines == ()


@pytest.mark.parametrize(("layout", "own_stages"), [("stage:stages", 1), ("", 4)])
def test_what_is_kept_is_what_the_gradient_reads_of_the_forward_pass(layout: str, own_stages: int) -> None:
    """What enters each step, and its scale; where nothing is computed again, the hyperbolic tangents too."""
    entering, scale = (6 * own_stages * n * 4 for n in (D_MODEL.size, 1))
    (record,) = planned(piped(recompute="nothing"), layout).report().pipelines
    assert (record.bytes_kept, record.bytes_kept_in_stage) == (entering + scale, 0)
    (record,) = planned(piped(), layout).report().pipelines
    assert (record.bytes_kept, record.bytes_kept_in_stage) == (2 * entering + scale, 0)


def test_without_a_gradient_nothing_is_kept() -> None:
    def program(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
        return mtf.scan(shifted, x, scale, STEPS)[1][0]

    report = planned(program).report()
    (record,) = report.pipelines
    assert (record.times, record.bytes_kept, record.bytes_kept_in_stage) == (1, None, None)
    assert "kept for the backward pass" not in str(report)


def test_stages_that_are_not_split_send_nothing() -> None:
    (record,) = planned(piped(), "").report().pipelines
    assert (record.axes, record.bytes_per_step, record.bubble) == ((), 0, 0.5)


def test_a_scan_that_the_program_does_not_need_is_not_reported() -> None:
    def program(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
        piped()(x, scale)
        return mtf.exp(x)

    assert planned(program).report().pipelines == ()


def test_parts_of_a_batch_take_all_steps_each() -> None:
    batch = mtf.Dimension("batch", 10)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            w = mtf.get_variable(x.mesh, "w", [STEP, STAGE])
            start = mtf.zeros(x.mesh, [STAGE, features["x"].shape[0]]) + features["x"]
            (y,), _ = mtf.scan(shifted, start, w, STEPS)
            return {"loss": mtf.reduce_sum(y)}

        return mtf.serialize_training_step({"x": x}, model, batch, 5)[0]

    mesh_impl = mtf.PlanMeshImpl("stages:4", "stage:stages")
    (record,) = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([batch])}).report().pipelines
    assert record.times == 10


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (
            piped(mtf.PipelineSteps(STEP, STAGE, USEFUL[:5], 3)),
            ShapeError,
            r'is_useful has shape \[5, 4\], and "step:6" steps of "stage:4" .* need \[6, 4\]',
        ),
        (
            piped(mtf.PipelineSteps(STEP, STAGE, ~USEFUL | True, 3)),
            GraphError,
            r"3 micro-batches in 1 rounds are 3 .* is_useful has \[6, 6, 6, 6\]",
        ),
        (
            piped(mtf.PipelineSteps(STEP, mtf.Dimension("satge", 4), USEFUL, 3)),
            ShapeError,
            'nothing that is carried from step to step has dimension "satge:4"',
        ),
        (piped(recompute="nested"), GraphError, 'recompute="nested" would cut the steps of a pipeline'),
    ],
)
def test_what_does_not_fit_the_scan_is_refused(program: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        planned(program)
    assert "mtf.scan" in str(raised.value)
    assert __file__ in str(raised.value)
