"""The versions in which tensors are held, and how operations read them.

A tensor is held first as it was computed, perhaps with a sum pending. Later it is also held in the layouts that readers
needed. A read takes the route with the fewest bytes from any version, and keeps the result as a new version.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import ZEROS, Fill, uneven_dims
from meshtf.planning.moves.moved_values import MovedValues
from meshtf.planning.moves.padded_moves import without_padding
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Value


class HeldTensors:
    """The versions of the tensors of a program or a block.

    Args:
      layouts: the layouts of all tensors.
      pending_sums: the pending sums of the program or the block.
      moves: the moves of the program or the block.
      outside: the tensors held around the block; None for the program.
      borrowed: tensors held outside the block. They are moved to the block's layouts once, outside the block.
    """

    def __init__(
        self,
        layouts: LayoutTable,
        pending_sums: PendingSums,
        moves: MovedValues,
        outside: HeldTensors | None = None,
        borrowed: frozenset[Tensor] = frozenset(),
    ) -> None:
        self._table = layouts
        self._pending_sums = pending_sums
        self._moves = moves
        self._outside = outside
        self._borrowed = borrowed
        self._versions: dict[Tensor, list[Value]] = {}

    def give(self, tensor: Tensor, value: Value) -> None:
        """Makes `value` the only version of `tensor`."""
        self._versions[tensor] = [value]

    def read(self, tensor: Tensor, layout: TensorLayout | None, fill: Fill | None) -> Value:
        """The tensor with no sum pending; see `Planner.read`."""
        if tensor in self._borrowed:
            outside = self._outside
            assert outside is not None
            return self._moves.made_outside(lambda: outside.read(tensor, layout, fill))
        own = self._layouts[tensor]
        wanted = own if layout is None else layout
        versions = self._versions[tensor]
        # Other readers need the tensor in its own layout. One allreduce serves them and this reader, which slices the
        # result.
        if wanted != own and versions[0].pending and len(versions) == 1 and self._pending_sums.is_needed_whole(tensor):
            self.read(tensor, None, ZEROS)
        source = self._nearest(versions, wanted)
        record = self._moves.record
        # A sum is attributed to the operation that left it pending, not to the first reader.
        with record.on_behalf_of(tensor.operation if source.pending else record.operation):
            value = self._moves.reshard(source, wanted)
        if value is not source:
            versions.append(value)
        return self._moves.filled(value, fill)

    def read_operands(self, operation: Operation, layouts: Sequence[TensorLayout], fill: Fill | None) -> list[Value]:
        """The inputs of an operation that passes pending sums; see `Planner.read_operands`."""
        if not self._pending_sums.is_passed_by(operation):
            return [self.read(x, layout, fill) for x, layout in zip(operation.inputs, layouts, strict=True)]
        moves = self._moves
        values = [
            moves.filled(value, fill) if value.pending and value.layout == layout else self.read(x, layout, fill)
            for x, layout in zip(operation.inputs, layouts, strict=True)
            for value in [self.held(x)]
        ]
        axes = tuple(d.name for d in moves.mesh_shape if any(d.name in v.pending for v in values))
        assert not any(set(axes) & v.layout.used for v in values), (operation, axes, *map(str, values))
        return [moves.made_pending(v, axes) for v in values]

    def read_operands_as_they_are(self, operation: Operation, fill: Fill | None) -> list[Value]:
        """The inputs in whatever layout they are held; see `Planner.read_operands_as_they_are`."""
        moves = self._moves
        if self._pending_sums.is_passed_by(operation):
            held = [self.held(x) for x in operation.inputs]
            return [moves.filled(v if self.is_seen(v) else without_padding(moves, v), fill) for v in held]
        return [moves.filled(self._whole(x), fill) for x in operation.inputs]

    def whole_versions(self, tensor: Tensor) -> list[Value]:
        """All versions of the tensor with no sum pending, in any layout; at least one."""
        self._whole(tensor)
        return self._seen_whole(tensor)

    def bytes_to_read(self, tensor: Tensor, layout: TensorLayout) -> int:
        """The bytes that each core would send to read the tensor in a layout."""
        return min(self._moves.route(value, layout).bytes_sent for value in self._versions_of(tensor))

    def held(self, tensor: Tensor) -> Value:
        """The tensor as it was computed, in any layout and perhaps pending: to wait for it, not to compute with it."""
        return self._versions_of(tensor)[0]

    def found(self, tensor: Tensor) -> Value | None:
        """The tensor as it was computed, inside or outside; None if it is in a block that cannot be seen from here."""
        if tensor in self._versions:
            return self._versions[tensor][0]
        return self._outside.found(tensor) if self._outside is not None else None

    def left(self, tensor: Tensor) -> Value:
        """The version of a tensor that a block passes to readers outside it.

        A version with no pending sum is preferred, and among these one in the tensor's own layout.
        """
        whole = [v for v in self._versions_of(tensor) if not v.pending]
        own = [v for v in whole if v.layout == self._layouts[tensor]]
        return (own or whole or self._versions_of(tensor))[0]

    def is_seen(self, value: Value) -> bool:
        """Whether the operation being lowered may use the value as it is, with its padding."""
        dims, operation = uneven_dims(value.layout, value.shape, self._moves.mesh_shape), self._moves.record.operation
        return not any(operation.needs_whole(value.shape[dim].name) for dim in dims)

    @property
    def _layouts(self) -> LayoutTable:
        return self._table.seen_by(self._moves.record.operation)

    def _nearest(self, versions: Sequence[Value], layout: TensorLayout) -> Value:
        # The number of steps breaks ties, because a route with a local slice sends as few bytes as an empty route.
        routes = ((v, self._moves.route(v, layout)) for v in versions)
        return min(routes, key=lambda found: (found[1].bytes_sent, len(found[1].steps)))[0]

    def _whole(self, tensor: Tensor) -> Value:
        """Some version with no sum pending."""
        whole = self._seen_whole(tensor)
        return whole[0] if whole else self.read(tensor, None, None)

    def _seen_whole(self, tensor: Tensor) -> list[Value]:
        return [v for v in self._versions_of(tensor) if not v.pending and self.is_seen(v)]

    def _versions_of(self, tensor: Tensor) -> list[Value]:
        if tensor in self._borrowed and tensor not in self._versions:
            assert self._outside is not None
            value = self._outside._whole(tensor)
            self.give(tensor, value)
            self._moves.take_from_outside(value)
        return self._versions[tensor]
