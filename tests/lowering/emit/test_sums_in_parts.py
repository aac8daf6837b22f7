"""Sums of gradients as arrays of their parts, on virtual CPUs: what sums in one tensor give, and nothing stays."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import PipelineSchedule
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.lowering.passes.pass_options import PassOptions
from tests.lowering.passes.test_gradients_in_place import (
    BATCH,
    D_MODEL,
    EVERY,
    NONE,
    Program,
    X,
    in_micro_batches,
    of_stages,
    squares_of,
)

PROGRAMS: dict[str, tuple[Program, str, str]] = {
    "a stack": (in_micro_batches(squares_of("nothing")), "rows:2;cols:2", "batch:rows;d_ff:cols"),
    "a pipeline": (of_stages(PipelineSchedule(2, 2)), "stages:2", "stage:stages"),
    "rounds": (of_stages(PipelineSchedule(2, 2, 2)), "stages:2", "stage:stages"),
}


def run(case: str, options: PassOptions) -> tuple[list[np.ndarray], collections.Counter[str]]:
    """The gradients of two steps, and how many operations there are of each type, inside of loops too."""
    program, mesh_shape, layout = PROGRAMS[case]
    mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
    inputs = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    step = mtf.function(program, mesh_impl, inputs, seed=3, pass_options=options)
    results = [g.numpy() for x in (X, 2 * X) for g in step(x=x)]
    emitted = step._execution.program
    assert isinstance(emitted, EmittedProgram)
    definition: Any = emitted._traced(asserted=False).function.graph.as_graph_def()  # type: ignore[attr-defined]
    nodes = [*definition.node, *(node for f in definition.library.function for node in f.node_def)]
    return results, collections.Counter(node.op for node in nodes)


@pytest.mark.parametrize("case", PROGRAMS)
def test_they_are_what_sums_in_one_tensor_are(case: str) -> None:
    (in_parts, counts), (whole, without) = run(case, EVERY), run(case, NONE)
    for own, other in zip(in_parts, whole, strict=True):
        np.testing.assert_array_equal(own, other)
    assert not without["TensorArrayGradV3"]
    assert counts["TensorArrayGradV3"] == counts["TensorArrayCloseV3"] > 0
