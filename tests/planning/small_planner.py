"""A planner of a few inputs, each in a layout of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import meshtf as mtf
from meshtf.layout import Axes, LayoutRules, TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.planner import Planner


class NoVariables:
    def layout(self, variable: object, layouts: LayoutTable) -> TensorLayout:
        raise AssertionError("these programs have none")


def table_of(layouts: Mapping[mtf.Tensor, Sequence[Axes]], mesh_shape: mtf.Shape) -> LayoutTable:
    table = LayoutTable(mesh_shape, LayoutRules({}))
    table.choose({tensor: ResolvedLayout(TensorLayout(tuple(axes))) for tensor, axes in layouts.items()})
    return table


def planner_of(layouts: Mapping[mtf.Tensor, Sequence[Axes]], mesh_shape: mtf.Shape) -> Planner:
    """Holds every input in this layout alone; what is added is on behalf of the first."""
    tensors, table = list(layouts), table_of(layouts, mesh_shape)
    operations = [t.operation for t in tensors]
    planner = Planner(table, PendingSums(operations, tensors, table), NoVariables())
    for tensor in tensors:
        planner.lower(tensor.operation)
        planner.write(tensor, planner.read(tensor))
    planner.record.operation = operations[0]
    return planner
