"""Two layouts beside each other: the numbers are those of the reports."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import LayoutError
from tests.debug.html_checks import checked_html
from tests.debug.programs import SPECS, on_paper, training_step

A, B = "batch:rows", "batch:rows;hidden:cols"


def test_the_numbers_are_those_of_the_programs_own_reports() -> None:
    compared = mtf.debug.compare_layouts(on_paper(), A, mtf.PlanMeshImpl("rows:2;cols:2", B), machine="v5e")
    own = [mtf.function(training_step, mtf.PlanMeshImpl("rows:2;cols:2", layout), SPECS).report() for layout in (A, B)]
    for report, other in zip(compared.reports, own, strict=True):
        for name in ("memory", "flops_per_core", "traffic", "bytes_sent_per_core", "variables"):
            assert getattr(report, name) == getattr(other, name)
    machine = mtf.costs.load_machine("v5e")
    assert compared.predictions is not None
    assert [p.seconds for p in compared.predictions] == [mtf.costs.predict(r, machine).seconds for r in own]
    rows = {name.strip(): (a, b) for name, a, b in compared.rows}
    assert rows["layout"] == (A, B)
    assert rows["all_gather over cols"][1] == "-"
    assert "predicted step on v5e" in rows
    sent = [sum(t.bytes_sent for t in r.traffic if (t.kind, t.axes) == ("all_reduce", ("cols",))) for r in own]
    assert rows["all_reduce over cols"] == (f"{sent[0]} B, 1 time", f"{sent[1]} B, 1 time")


def test_the_tensors_that_differ_are_those_whose_layouts_do() -> None:
    compared = mtf.debug.compare_layouts(on_paper(), A, B)
    layouts = [{t.name: t.layout for t in (*r.tensors, *r.variables)} for r in compared.reports]
    assert {t.name for t in compared.tensors} == {n for n in layouts[0] if layouts[0][n] != layouts[1][n]}
    kernel = next(t for t in compared.tensors if t.name == "hidden/kernel")
    assert kernel.layouts == ("<b>:12 hidden:16", "<b>:12 hidden:16/cols")
    assert kernel.bytes_per_core == (12 * 16 * 4, 12 * 16 * 4 // 2)
    for text in (str(compared), checked_html(compared._repr_html_())[1]):
        assert "update of hidden/kernel" in text
        assert "<b>:12 hidden:16/cols" in text
        assert "under two layouts" in text
    same = mtf.debug.compare_layouts(on_paper().lowering, A, A)
    assert "no tensor is laid out differently" in str(same)


def test_a_layout_that_does_not_fit_is_told() -> None:
    with pytest.raises(LayoutError, match=r'names mesh axis "column", which mesh \[rows:2 cols:2\] does not have'):
        mtf.debug.compare_layouts(on_paper(), A, "batch:column")
