"""The pause of Python's collector: over when what it is for is over, however that ends."""

from __future__ import annotations

import gc

import pytest

import meshtf as mtf
from meshtf.garbage_collection import garbage_collection_paused


def test_the_collector_is_as_before_afterwards() -> None:
    seen = []

    def body(x: mtf.Tensor) -> mtf.Tensor:
        seen.append(gc.isenabled())
        return mtf.reduce_sum(x)

    step = mtf.function(body, mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs={"x": mtf.TensorSpec("batch:4")})
    step.report()
    assert (seen, gc.isenabled()) == ([False], True)
    with pytest.raises(mtf.errors.ShapeError):
        mtf.function(lambda x: x.shape.axis("abc"), step.lowering.mesh_impl, inputs={"x": mtf.TensorSpec("batch:4")})
    assert gc.isenabled()
    gc.disable()
    try:
        with garbage_collection_paused():
            pass
        assert not gc.isenabled(), "it was off before"
    finally:
        gc.enable()
