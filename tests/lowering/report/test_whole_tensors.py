"""What every core holds whole is in the report, with why."""

from __future__ import annotations

from typing import Any

import pytest

import meshtf as mtf

pytestmark = pytest.mark.quick

BATCH, IN, HIDDEN = mtf.Dimension("batch", 8), mtf.Dimension("d_in", 16), mtf.Dimension("hidden", 32)


def test_what_every_core_holds_whole_is_listed_with_why() -> None:
    def program(x: mtf.Tensor, whole: mtf.Tensor) -> mtf.Tensor:
        table = mtf.get_variable(x.mesh, "table", [IN, HIDDEN])
        h = mtf.einsum([x, table], [BATCH, HIDDEN])
        total = mtf.reduce_sum(h, reduced_dim=BATCH) * mtf.reduce_sum(mtf.tanh(mtf.replicate(h)), reduced_dim=BATCH)
        return total + mtf.reduce_sum(mtf.tanh(whole), reduced_dim="d_in")

    inputs = {"x": mtf.TensorSpec([BATCH, IN]), "whole": mtf.TensorSpec([IN, HIDDEN])}
    report = mtf.function(program, mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs=inputs).report()
    why = {record.name: record.why for record in report.whole_tensors}
    assert why["table"] == "no rule splits any of its dimensions between steps: d_in, hidden"
    assert why["whole"] == "an input that is not only cut into slices: tanh_1 reads it whole"
    reasons = {record.why for record in report.whole_tensors}
    assert "gathered over rows: tanh reads it whole" in reasons
    assert "made whole, though a rule splits batch: reduce_sum_1 reads it whole" in reasons
    assert "each core has a term of a sum over rows, which is still pending" in reasons
    assert "x" not in why
    assert "held whole by every core, above 1% of the peak" in str(report)
    alone = mtf.function(program, mtf.PlanMeshImpl("rows:1", "batch:rows"), inputs=inputs).report()
    assert alone.whole_tensors == ()


@pytest.mark.parametrize(
    ("layout", "options"), [("batch:data.0", {"axis_parts": "data:2x4"}), ("", {"activation_layout": "batch:data"})]
)
def test_rules_for_parts_and_for_activations_are_rules(layout: str, options: dict[str, Any]) -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.tanh(mtf.replicate(x))

    mesh_impl = mtf.PlanMeshImpl("data:8", layout, **options)
    report = mtf.function(program, mesh_impl, {"x": mtf.TensorSpec([BATCH])}).report()
    assert report.whole_tensors[-1].why == "made whole, though a rule splits batch: it is a result"


def test_what_a_collective_did_is_named() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_max(x, reduced_dim=BATCH)

    step = mtf.function(program, mtf.PlanMeshImpl("rows:2", "batch:rows"), {"x": mtf.TensorSpec([BATCH, IN])})
    reasons = {record.why for record in step.report().whole_tensors}
    assert "reduced by max over rows: it is a result" in reasons
