"""What a report says of padding."""

from __future__ import annotations

import meshtf as mtf
from meshtf.lowering.report.report import Report

BATCH, WIDTH = mtf.Dimension("batch", 10), mtf.Dimension("width", 8)


def square(x: mtf.Tensor) -> mtf.Tensor:
    w = mtf.get_variable(x.mesh, "w", [BATCH, WIDTH])
    return mtf.reduce_sum(mtf.square(x * w))


def report(layout: str) -> Report:
    mesh_impl = mtf.PlanMeshImpl("rows:4;cols:2", layout)
    return mtf.function(square, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, WIDTH])}).report()


def test_what_padding_costs_is_said() -> None:
    found = report("batch:rows;width:cols")
    (padding,) = found.padding
    assert (padding.dimension, padding.size, padding.axes) == ("batch", 10, ("rows",))
    assert (padding.parts, padding.padded, padding.share) == (4, 12, 1 / 6)
    slice_size = 3 * 4
    assert padding.bytes == slice_size * 4 // 6
    # the product, its square, the zeros beyond the end, and the sum
    assert found.flops_per_core == 4 * slice_size
    assert padding.flops == 4 * slice_size // 6
    lines = str(found).splitlines()
    start = lines.index("padding: what cores hold and compute beyond the ends of dimensions")
    assert lines[start + 2].split() == ["16.7%", "8", "FLOP", "8", "B", "batch:10/rows", "4", "parts", "of", "3"]


def test_where_sizes_divide_there_is_none() -> None:
    found = report("width:rows")
    assert found.padding == ()
    assert "padding: " not in str(found)
