"""Predictions: parts that add up to the step, loops that count as often as they run, work that hides collectives."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.costs import Machine, NetworkLevel, load_machine, predict
from meshtf.lowering.report.report import Report

pytestmark = pytest.mark.quick

BATCH, HIDDEN, OUT = mtf.Dimension("batch", 512), mtf.Dimension("hidden", 1024), mtf.Dimension("out", 1024)
LAYERS = mtf.Dimension("layers", 6)
LINKS = (NetworkLevel(None, 1e9, 0.0),)
SLOW = Machine("slow", "a test", {"float32": 1e12}, 1e9, 100e9, LINKS, vector_flops=1e12)


def _step(x: mtf.Tensor) -> mtf.Tensor:
    def layer(carried: Sequence[mtf.Tensor], _: Sequence[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        w = mtf.get_variable(x.mesh, "w", [HIDDEN, OUT])
        return [mtf.rename_dimension(mtf.relu(mtf.einsum([carried[0], w], [BATCH, OUT])), "out", "hidden")], []

    (y,), _ = mtf.layer_stack(layer, x, LAYERS)
    loss = mtf.reduce_mean(mtf.square(y))
    mtf.optimize.AdamOptimizer(1e-3).minimize(loss)
    return loss


def _report(mesh_shape: str, layout: str) -> Report:
    step = mtf.function(
        _step, mtf.PlanMeshImpl(mesh_shape, layout), inputs={"x": mtf.TensorSpec([BATCH, HIDDEN], tf.float32)}
    )
    return step.report()


@pytest.fixture(scope="module")
def report() -> Report:
    return _report("data:4", "batch:data")


def test_parts_add_up_to_the_step_and_products_take_what_they_compute(report: Report) -> None:
    prediction = predict(report, SLOW, tokens_per_step=512)
    assert prediction.parts.total == pytest.approx(prediction.seconds)
    products = sum(o.flops * o.times for o in report.operations if o.category == "product")
    assert products == 6 * 3 * 2 * 128 * 1024 * 1024
    assert prediction.parts.products == pytest.approx(products / 1e12)
    assert prediction.parts.update > 0
    assert prediction.parts.bubble == 0
    assert prediction.tokens_per_second == pytest.approx(512 / prediction.seconds)
    assert prediction.share_of_peak == pytest.approx(products / 1e12 / prediction.seconds)


def test_collectives_are_those_of_the_report(report: Report) -> None:
    prediction = predict(report, SLOW)
    assert sum(c.bytes_sent for c in prediction.collectives) == report.bytes_sent_per_core
    assert sum(c.count for c in prediction.collectives) == sum(c.times for c in report.collectives)
    assert prediction.parts.communication == pytest.approx(sum(c.seconds for c in prediction.collectives))


def test_operations_of_a_loop_are_its_time(report: Report) -> None:
    prediction = predict(report, SLOW)
    loops = [n for n, o in enumerate(report.operations) if o.category == "loop"]
    assert loops
    for number in loops:
        inside = [
            t.seconds for t, o in zip(prediction.operations, report.operations, strict=True) if o.inside == number
        ]
        assert prediction.operations[number].seconds == pytest.approx(sum(inside))


def test_work_hides_collectives_where_the_machine_overlaps(report: Report) -> None:
    serial, overlapping = predict(report, SLOW), predict(report, dataclasses.replace(SLOW, overlaps=True))
    assert overlapping.parts.total == pytest.approx(overlapping.seconds)
    assert overlapping.hidden_communication > 0
    hidden = serial.parts.communication - overlapping.parts.communication
    assert overlapping.hidden_communication == pytest.approx(hidden, rel=1e-6)
    assert overlapping.seconds == pytest.approx(serial.seconds - hidden)
    assert sum(c.exposed_seconds for c in overlapping.collectives) == pytest.approx(overlapping.parts.communication)
    assert [c.exposed_seconds for c in serial.collectives] == [c.seconds for c in serial.collectives]
    assert " of the step and the rest behind other work" in str(overlapping)
    assert "behind" not in str(serial)


def test_fused_work_takes_less_than_each_by_itself(report: Report) -> None:
    fused = predict(report, dataclasses.replace(SLOW, fuses=True))
    assert fused.parts.elementwise < predict(report, SLOW).parts.elementwise
    assert fused.parts.communication == predict(report, SLOW).parts.communication


def test_twice_the_machine_takes_half_the_time(report: Report) -> None:
    twice = dataclasses.replace(
        SLOW,
        peak_flops={"float32": 2e12},
        memory_bandwidth=200e9,
        vector_flops=2e12,
        links=(NetworkLevel(None, 2e9, 0.0),),
    )
    assert predict(report, twice).seconds == pytest.approx(predict(report, SLOW).seconds / 2)


def test_text_and_json_say_what_takes_how_long_and_whether_it_fits(report: Report) -> None:
    small = dataclasses.replace(SLOW, memory_bytes=1e6)
    prediction = predict(report, small, tokens_per_step=512)
    assert not prediction.fits
    text = str(prediction)
    assert text.startswith("predicted on slow: ")
    assert f"{prediction.peak_bytes / 2**20:.1f} MiB of 976.6 KiB a core: it does not fit" in text
    assert "all_reduce over data (4 on level 0)" in text
    assert " of inf B a core" in str(predict(report, dataclasses.replace(SLOW, memory_bytes=math.inf)))
    data = json.loads(json.dumps(prediction.to_dict()))
    assert data["fits"] is False
    assert len(data["operations"]) == len(report.operations)
    assert "operations" not in prediction.to_dict(operations=False)


def test_idle_steps_of_a_pipeline_are_its_bubble() -> None:
    schedule = mtf.layers.PipelineSchedule(num_stages=4, num_microbatches=4)

    def layer(carried: list[mtf.Tensor], _: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
        return [mtf.layers.dense(carried[0], [HIDDEN], [HIDDEN], activation=mtf.tanh)]

    def program(x: mtf.Tensor) -> mtf.Tensor:
        (y,) = mtf.layers.pipeline(layer, x, mtf.Dimension("layers", 8), schedule)
        return mtf.reduce_sum(y)

    mesh_impl = mtf.PlanMeshImpl("stages:4", "stage:stages")
    step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, HIDDEN], tf.float32)})
    prediction = predict(step.report(), SLOW)
    (pipeline,) = step.report().pipelines
    assert pipeline.bubble == pytest.approx(3 / 7)
    assert prediction.parts.bubble > 0
    assert prediction.parts.total == pytest.approx(prediction.seconds)


def test_the_share_of_the_peak_is_that_of_the_way_that_a_branch_takes() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [HIDDEN, OUT])
        is_large = mtf.greater(mtf.reduce_sum(x), 0.0)
        products = [lambda x=x: mtf.einsum([x, w], [BATCH, OUT]) for x in (x, 2.0 * x)]
        return mtf.cond(is_large, *products)[0]

    step = mtf.function(program, mtf.PlanMeshImpl("rows:1", ""), inputs={"x": mtf.TensorSpec([BATCH, HIDDEN])})
    prediction = predict(step.report(), SLOW)
    assert prediction.share_of_peak == pytest.approx(2 * 512 * 1024 * 1024 / 1e12 / prediction.seconds)


def test_every_machine_predicts_every_mesh() -> None:
    report = _report("x:8;y:2", "batch:x;hidden:y")
    for name in ("v2", "v3", "v4", "v5e", "v5p", "a100", "h100", "h200"):
        assert 0 < predict(report, load_machine(name)).seconds < 1


def test_a_step_takes_its_start_whatever_is_in_it(report: Report) -> None:
    later = predict(report, dataclasses.replace(SLOW, step_seconds=1.0))
    assert later.parts.start == 1
    assert later.seconds == pytest.approx(1 + predict(report, SLOW).seconds)
    assert later.operations[0].begins >= 1
    assert later.parts.total == pytest.approx(later.seconds)
