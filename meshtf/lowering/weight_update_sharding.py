"""Sharding of the weight update (Xu et al. 2020): cores that would repeat an update divide it among themselves.

Where a gradient is a sum over mesh axes that do not split its variable, every core along them would do the same update.
Instead the sum becomes a reduce-scatter, each core updates its share, optimizer state is kept in shares, and the new
weights are gathered: as many bytes as the allreduce, and a fraction of the work and memory. The pass only chooses
layouts, for the tensors between gradients and assignments; the collectives follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import networkx

from meshtf.dimension import Shape
from meshtf.graph import Operation, Tensor
from meshtf.layout import TensorLayout, axes_size
from meshtf.lowering.layouts import LayoutTable, ResolvedLayout
from meshtf.lowering.pending_sums import PendingSums
from meshtf.lowering.planner import Storage
from meshtf.ops.pointwise import PointwiseOperation
from meshtf.ops.variables import Assign, ReadVariable, Variable

SMALLEST = 1 << 14
"""Elements of the smallest variable whose update is divided: below, a second collective costs more than it saves."""


def sharded_updates(
    operations: Sequence[Operation], layouts: LayoutTable, pending_sums: PendingSums, storage: Storage
) -> dict[Tensor, ResolvedLayout]:
    """The layouts that divide the updates of a program whose other tensors are laid out as in `layouts`.

    A variable that is kept in another layout than it is computed with is updated in the layout that it is kept in.
    """
    stored = {o.variable: storage.layout(o.variable, layouts) for o in operations if isinstance(o, Assign)}
    divisible = {v for v, layout in stored.items() if v.shape.size >= SMALLEST or layout != layouts[v.value]}
    region = _update_operations(operations, divisible, pending_sums)
    chosen: dict[Tensor, ResolvedLayout] = {}
    for component in _components(region):
        chosen.update(_component_layouts(component, region, stored, layouts, pending_sums))
    return chosen


def _consumers(operations: Iterable[Operation]) -> dict[Tensor, list[Operation]]:
    consumers: dict[Tensor, list[Operation]] = {}
    for operation in operations:
        for x in operation.inputs:
            consumers.setdefault(x, []).append(operation)
    return consumers


def _update_operations(
    operations: Sequence[Operation], assigned: set[Variable], pending_sums: PendingSums
) -> set[Operation]:
    """Elementwise operations whose results serve assignments only, the assignments, and the state that they read."""
    region: set[Operation] = set()
    consumers = _consumers(operations)
    shapes = {_names(v.shape) for v in assigned}
    for operation in reversed(operations):
        if any(t.is_overridden for t in operation.outputs) or pending_sums.is_passed_by(operation):
            continue
        is_update = isinstance(operation, PointwiseOperation) and _names(operation.outputs[0].shape) in shapes
        is_state = isinstance(operation, Assign | ReadVariable) and operation.variable in assigned
        is_slot = isinstance(operation, Variable) and operation in assigned and not operation.trainable
        used = [c for t in operation.outputs for c in consumers.get(t, [])]
        if (is_update or is_state or is_slot) and (used or is_state) and all(c in region for c in used):
            region.add(operation)
    return region


def _names(shape: Shape) -> frozenset[tuple[str, int]]:
    return frozenset((d.name, d.size) for d in shape)


def _components(region: set[Operation]) -> Iterable[list[Operation]]:
    ties = networkx.Graph()
    ties.add_nodes_from(region)
    for operation in region:
        ties.add_edges_from((operation, x.operation) for x in operation.inputs if x.operation in region)
        if isinstance(operation, Assign | ReadVariable):
            ties.add_edge(operation, operation.variable)
    for component in networkx.connected_components(ties):
        kept = [o for o in component if o in region]
        if kept:
            yield kept


def _component_layouts(
    component: Sequence[Operation],
    region: set[Operation],
    stored: Mapping[Variable, TensorLayout],
    layouts: LayoutTable,
    pending_sums: PendingSums,
) -> dict[Tensor, ResolvedLayout]:
    assigned = [o.variable for o in component if isinstance(o, Assign)]
    if not assigned or len({_names(v.shape) for v in assigned}) != 1:
        return {}
    kept = next((v for v in assigned if v.trainable), assigned[0])
    entering = {x for o in component for x in o.inputs if x.operation not in region}
    pending = [axes for x in entering if (axes := pending_sums.pending_over(x))]
    if not pending and stored[kept] == layouts[kept.value]:
        return {}
    repeated = frozenset.intersection(*pending) if pending else frozenset()
    layout = _divided(kept.shape, stored[kept], repeated, layouts.mesh_shape)
    by_name = dict(zip(kept.shape.dimension_names, layout.axes, strict=True))
    return {
        t: ResolvedLayout(TensorLayout(tuple(by_name[d.name] for d in t.shape)))
        for o in component
        for t in o.outputs
        if not (isinstance(o, Assign) and o.variable not in region)
    }


def _divided(shape: Shape, layout: TensorLayout, repeated: frozenset[str], mesh_shape: Shape) -> TensorLayout:
    """The layout with the axes over which the update is repeated added to dimensions that they divide."""
    axes = list(layout.axes)
    free = [d.name for d in mesh_shape if d.name in repeated and d.name not in layout.used]
    for axis in free:
        for i, dim in enumerate(shape):
            if dim.size % axes_size((*axes[i], axis), mesh_shape) == 0:
                axes[i] = (*axes[i], axis)
                break
    return TensorLayout(tuple(axes))
