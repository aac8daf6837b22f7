"""A perceptron and its plans, whose costs are small enough to work out by hand."""

from __future__ import annotations

import meshtf as mtf
from meshtf.planning.plan import Plan

FLOAT = 4  # bytes
BATCH, IN, HIDDEN, OUT = (
    mtf.Dimension("batch", 8),
    mtf.Dimension("d_in", 16),
    mtf.Dimension("hidden", 32),
    mtf.Dimension("d_out", 4),
)
ROWS, COLS = 2, 4


def perceptron(x: mtf.Tensor) -> mtf.Tensor:
    """[batch, d_in] -> [batch, d_out]"""
    first = mtf.get_variable(x.mesh, "first", [IN, HIDDEN])
    second = mtf.get_variable(x.mesh, "second", [HIDDEN, OUT])
    return mtf.einsum([mtf.relu(mtf.einsum([x, first], [BATCH, HIDDEN])), second], [BATCH, OUT])


def plan_of(fn: object, layout: str, mesh: str = "rows:2;cols:4", *, parameter_layout: str | None = None) -> Plan:
    mesh_impl = mtf.SpmdMeshImpl(mesh, layout, parameter_layout=parameter_layout)
    step = mtf.function(fn, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, IN])})
    return step.lowering.execution(step._fetches).plan
