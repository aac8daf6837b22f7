"""Sharding of the weight update (Xu et al. 2020): cores that would repeat an update divide it among themselves.

If a gradient is a sum over mesh axes that do not split its variable, every core along them would do the same update.
Instead the sum becomes a reduce-scatter, each core updates its share, optimizer state is kept in shares, and the new
weights are gathered. This sends as many bytes as the allreduce, and takes a fraction of the work and memory. A weight
that is kept in float32 and read in bfloat16 stays in shares between steps, and its copy in bfloat16 is gathered.

The pass only chooses layouts for the tensors between gradients and assignments. The collectives follow from the
layouts. If the cores divide no dimension, one is padded (`padded_layouts.py`), or two are divided by parts of a mesh
axis (`divided_layouts.py`). Files and users see neither.

For example, take a weight [d_model:512 d_ff:2048] on data:8 with Adam. The gradient's pending sum over `data` is read
as [d_model:512/data d_ff:2048], which is a reduce-scatter. m and v are kept in this layout. The new weight is gathered
for the next step. Each core updates an eighth, and keeps an eighth of m and v.

The divided region goes from the sums to the assignments, and the pass finds it backwards. An operation belongs to it if
it works element by element on the variable's dimensions, and all its results are used inside the region or by sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import networkx

from meshtf.dimension import Shape
from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.reduction import ReduceOperation
from meshtf.ops.random.random_operation import RandomOperation
from meshtf.ops.random.stochastic_rounding import VariableBits
from meshtf.ops.variables.variable import Assign, ReadVariable, Variable
from meshtf.planning.layouts.divided_layouts import MOST_PADDING, Divisible, divided
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.stored_variables import OpenStorage

_NOT_ELEMENTWISE = "its new value is not made from the old one element by element"


@dataclasses.dataclass(frozen=True)
class ShardedUpdates:
    """The layouts that divide the updates of a program.

    kept: layouts of weights between steps, by variable, if each core keeps the share that it updates. reasons: why the
    other updates are done on every core, by variable. undivided: variables that some mesh axes do not divide.
    """

    layouts: dict[Tensor, ResolvedLayout] = dataclasses.field(default_factory=dict)
    kept: dict[str, TensorLayout] = dataclasses.field(default_factory=dict)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)
    undivided: tuple[Divisible, ...] = ()


def sharded_updates(
    operations: Sequence[Operation],
    layouts: LayoutTable,
    pending_sums: PendingSums,
    storage: OpenStorage,
    options: PassOptions,
) -> ShardedUpdates:
    """Divides the updates of a program whose other tensors are laid out as in `layouts`.

    If a variable is kept in another layout than it is computed with, it is updated in the layout that it is kept in.
    """
    stored = {o.variable: storage.layout(o.variable, layouts) for o in operations if isinstance(o, Assign)}
    smallest = options.smallest_divided_update
    divisible = {v for v, layout in stored.items() if v.shape.size >= smallest or layout != layouts[v.value]}
    region = _update_operations(operations, divisible, layouts, pending_sums)
    read_again = {o.variable for o in with_nested(operations) if isinstance(o, ReadVariable) and o not in region}
    program = _Program(region, _consumers(operations), stored, layouts, pending_sums, read_again)
    kept_in_shares: dict[str, TensorLayout] = {}
    too_small = f"fewer than {smallest} elements"
    reasons = {
        v.full_name: _NOT_ELEMENTWISE if v in divisible else too_small
        for v in stored
        if v.trainable and program.repeats(v)
    }
    chosen: dict[Tensor, ResolvedLayout] = {}
    undivided: list[Divisible] = []
    for component in _components(region):
        assigned = [o.variable for o in component if isinstance(o, Assign)]
        if not assigned:
            continue
        # The weight decides how the component is divided, and its slots, such as Adam's moments, follow.
        kept = next((v for v in assigned if v.trainable), assigned[0])
        found = program.divisible(kept, component, assigned)
        if isinstance(found, Divisible):
            layout = divided(found, layouts.mesh_shape, layouts.axis_parts)
            if not found.repeated <= layout.used:
                undivided.append(found)
            if not layout == found.layout == layouts[kept.value]:
                chosen.update(program.divided_layouts(component, kept.shape, layout))
                for variable in assigned:
                    reasons.pop(variable.full_name, None)
                for variable in program.gathered_to_be_read(assigned, layout, options):
                    own = _in_order_of(variable.shape, kept.shape, layout)
                    if storage.takes(variable, own, layouts):
                        kept_in_shares[variable.full_name] = own
                continue
            found = _reason_undivided(program.reader_of_padding(component))
        reasons.update({v.full_name: found for v in assigned if v.full_name in reasons})
    return ShardedUpdates(chosen, kept_in_shares, reasons, tuple(undivided))


def _reason_undivided(reader: str) -> str:
    least = f"without padding, which {reader} needs" if reader else f"with at most {MOST_PADDING:.1%} of padding"
    return f"neither a mesh axis nor two parts of one divide it {least}"


def _consumers(operations: Iterable[Operation]) -> dict[Tensor, list[Operation]]:
    consumers: dict[Tensor, list[Operation]] = {}
    for operation in operations:
        for x in operation.inputs:
            consumers.setdefault(x, []).append(operation)
    return consumers


_UPDATES = (ElementwiseOperation, RandomOperation, VariableBits)


def _update_operations(
    operations: Sequence[Operation], assigned: set[Variable], layouts: LayoutTable, pending_sums: PendingSums
) -> set[Operation]:
    """Returns the operations of the region that may be divided.

    These are the assignments, the reads of the state they update, and elementwise operations whose results only serve
    assignments and sums. Random tensors belong to it, since every core can draw any part of them.

    A sum (a norm, a mean) takes its operand as it is split: each core adds up its share, and a few numbers are sent.
    """
    region: set[Operation] = set()
    consumers = _consumers(operations)
    shapes = {_names(v.shape) for v in assigned}
    # In reverse order, the readers of a result come before the operation that makes it, so it is known whether all of
    # them are in the region.
    for operation in reversed(operations):
        if any(layouts.resolved(t).is_overridden for t in operation.outputs) or pending_sums.is_passed_by(operation):
            continue
        is_update = isinstance(operation, _UPDATES) and _names(operation.outputs[0].shape) in shapes
        is_state = isinstance(operation, Assign | ReadVariable) and operation.variable in assigned
        is_slot = isinstance(operation, Variable) and operation in assigned and not operation.trainable
        used = [c for t in operation.outputs for c in consumers.get(t, [])]
        is_used_here = all(c in region or isinstance(c, ReduceOperation) for c in used)
        if (is_update or is_state or is_slot) and (used or is_state) and is_used_here:
            region.add(operation)
    return region


def _names(shape: Shape) -> frozenset[tuple[str, int]]:
    return frozenset((d.name, d.size) for d in shape)


def _components(region: set[Operation]) -> Iterable[list[Operation]]:
    ties = networkx.Graph()
    ties.add_nodes_from(region)
    for operation in region:
        # All readers of one gradient must read it in one layout, or it would be sent twice.
        alike = [x for x in operation.inputs if _names(x.shape) == _names(operation.outputs[0].shape)]
        ties.add_edges_from((operation, x.operation if x.operation in region else x) for x in alike)
        if isinstance(operation, Assign | ReadVariable):
            ties.add_edge(operation, operation.variable)
    for component in networkx.connected_components(ties):
        kept = [o for o in component if o in region]
        if kept:
            yield kept


@dataclasses.dataclass(frozen=True)
class _Program:
    region: set[Operation]
    consumers: Mapping[Tensor, Sequence[Operation]]
    stored: Mapping[Variable, TensorLayout]
    layouts: LayoutTable
    pending_sums: PendingSums
    read_again: Collection[Variable]
    """Variables that operations outside of the region read, at their places in the program."""

    def repeats(self, variable: Variable) -> bool:
        """Tells whether several cores keep the same slice of the variable."""
        used = self.stored[variable].used
        return any(d.size > 1 and d.name not in used for d in self.layouts.mesh_shape)

    def divisible(
        self, kept: Variable, component: Sequence[Operation], assigned: Sequence[Variable]
    ) -> Divisible | str:
        """Returns how a component, which updates `kept`, can be divided, or the reason why it is left as it is."""
        if len({_names(v.shape) for v in assigned}) != 1:
            return "it is updated together with variables of other shapes"
        entering = {x for o in component for x in o.inputs if x.operation not in self.region}
        pending = [axes for x in entering if (axes := self.pending_sums.pending_over(x))]
        repeated = frozenset.intersection(*pending) if pending else frozenset()
        if not repeated and self.stored[kept] == self.layouts[kept.value]:
            return "no sum over cores enters its update"
        most_padding = 0 if self.reader_of_padding(component) else MOST_PADDING
        return Divisible(kept.shape, self.stored[kept], repeated, most_padding)

    def divided_layouts(
        self, component: Sequence[Operation], shape: Shape, layout: TensorLayout
    ) -> dict[Tensor, ResolvedLayout]:
        """Returns the layouts of a component's tensors, if a tensor of `shape` has this layout."""
        return {
            t: ResolvedLayout(_in_order_of(t.shape, shape, layout))
            for o in component
            for t in o.outputs
            if not (isinstance(o, Assign) and o.variable not in self.region)
        }

    def gathered_to_be_read(
        self, assigned: Sequence[Variable], layout: TensorLayout, options: PassOptions
    ) -> Iterator[Variable]:
        """Yields the weights that are read in fewer bytes than they are kept in, so that their copies are gathered
        instead.

        A small weight is left out: it travels with others in a bucket when it is assigned. A weight split by a part of
        a mesh axis is left out too: other programs that read it would not know of that part.
        """
        if not all(self.layouts.whole_mesh_shape.has(axis) for axis in layout.used):
            return
        for variable in assigned:
            read, kept = variable.value.dtype.size, variable.slice_dtype.size
            size = math.prod(self.layouts[variable.value].slice_shape(variable.shape, self.layouts.mesh_shape))
            is_large = size * kept > options.largest_bucket_member
            if variable.trainable and read < kept and is_large and variable not in self.read_again:
                yield variable

    def reader_of_padding(self, component: Sequence[Operation]) -> str:
        """Returns the name of an operation outside the region that cannot leave padding out, or an empty text."""
        readers = (c for o in component for t in o.outputs for c in self.consumers.get(t, ()) if c not in self.region)
        return next((c.name for c in readers if not _leaves_padding_out(c)), "")


def _in_order_of(own: Shape, shape: Shape, layout: TensorLayout) -> TensorLayout:
    """Returns the layout of a tensor whose dimensions are dimensions of `shape`, which has `layout`."""
    by_name = dict(zip(shape.dimension_names, layout.axes, strict=True))
    return TensorLayout(tuple(by_name[d.name] for d in own))


def _leaves_padding_out(operation: Operation) -> bool:
    """Tells whether the operation can leave padding out: a sum, elementwise work or an assignment can."""
    is_sum = isinstance(operation, ReduceOperation) and operation.is_sum
    return is_sum or isinstance(operation, ElementwiseOperation | Assign)
