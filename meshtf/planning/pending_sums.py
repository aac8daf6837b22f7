"""Decides where sums over cores are done: as late as possible without sending more bytes.

A contraction over a split dimension leaves each core with one term of a sum. Linear operations (add, scalar multiply,
reshape, sums over other dimensions, ...) can work on the terms and leave the sum to their consumers. A minimum cut
decides which operations do so. A tensor on the near side of the cut is pending. A tensor on the far side has been
reduced.

- Reducing a pending tensor costs its bytes once, however many consumers need it.
- An operand that is not pending costs a mask if another operand is pending.

The cut nearest to the consumers wins among the cheapest. A mean is the exception. It is more exact if it divides the
finished sum, so it divides terms only where that sends less.

For example, let both contractions in y = x @ w + u @ v be split over `cols`. Two allreduces could come before the
addition, or one after it. The addition is linear, and one tensor crosses a cut after it instead of two, so one
allreduce comes after it. In tanh(x @ w) the sum is done before the tanh, which is not linear.

A sum that is not done yet is called a *pending sum*: each core holds a term of it, a value of the same shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import networkx

from meshtf.graph.blocks import Block
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout, restricted
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.local_work.wide_terms import term_dtype
from meshtf.planning.moves.reshard import cheapest_route

_MASK_SHARE = 16
"""The cost of sending a tensor, divided by the cost of masking it, which touches only memory."""

_START, _END = "start", "end"


class PendingSums:
    """Which operations work on pending sums."""

    def __init__(
        self,
        operations: Sequence[Operation],
        fetches: Iterable[Tensor],
        layouts: LayoutTable,
        accumulated: Iterable[Tensor] = (),
        times: int = 1,
        returned: Iterable[Tensor] = (),
    ) -> None:
        self._layouts = layouts
        self._accumulated = set(accumulated)
        self._returned = set(returned)
        self._times = times
        self._fetches = set(fetches)
        self._operations = operations
        self._own: dict[Tensor, tuple[str, ...]] = {}
        self._candidates: dict[Tensor, frozenset[str]] = {}
        self._consumers: dict[Tensor, list[Operation]] = {}
        self._able: set[Operation] = set()
        self._passing: set[Operation] = set()
        for operation in operations:
            self._visit(operation)
        for component in self._components():
            self._solve(component)

    def is_passed_by(self, operation: Operation) -> bool:
        """Whether the operation takes pending inputs as they are and leaves its output pending."""
        return operation in self._passing

    def pending_over(self, tensor: Tensor) -> frozenset[str]:
        """The mesh axes over which the tensor's value is a pending sum when it is computed; empty if it is none."""
        own = self._own.get(tensor, ())
        if tensor.operation in self._passing or own:
            return self._candidates.get(tensor, frozenset())
        return frozenset()

    def left_by(self, outputs: Sequence[Tensor]) -> list[tuple[str, ...]]:
        """The mesh axes over which each output of a block may be left pending to its readers."""
        return [() if self.is_needed_whole(t) else tuple(sorted(self.pending_over(t))) for t in outputs]

    def consumers(self, tensor: Tensor) -> Sequence[Operation]:
        """The operations that read the tensor."""
        return self._consumers.get(tensor, ())

    def is_used(self, tensor: Tensor) -> bool:
        """Whether anything reads or fetches the tensor, or the block returns it."""
        return tensor in self._returned or self._is_read(tensor)

    def _is_read(self, tensor: Tensor) -> bool:
        return tensor in self._fetches or bool(self._consumers.get(tensor))

    def is_needed_whole(self, tensor: Tensor) -> bool:
        """Whether a fetch or a consumer needs the tensor reduced, in its own layout."""
        return tensor in self._fetches or any(
            consumer not in self._passing and self._reads_in_own_layout(consumer, tensor)
            for consumer in self._consumers.get(tensor, ())
        )

    def _reads_in_own_layout(self, consumer: Operation, tensor: Tensor) -> bool:
        """Whether an operation reads a tensor in the tensor's own layout.

        It does not if each of its outputs has all dimensions of the tensor, and splits them differently.
        """
        own = self._layouts[tensor]
        return not consumer.outputs or any(
            not all(output.shape.has(d.name) for d in tensor.shape)
            or restricted(self._layouts[output], output.shape, tensor.shape) == own
            for output in consumer.outputs
        )

    def _visit(self, operation: Operation) -> None:
        for x in operation.inputs:
            self._consumers.setdefault(x, []).append(operation)
        carried = [self._candidates[x] for x in operation.inputs if x in self._candidates]
        if carried and operation.passes_pending_sums and self._leaves_slices_apart(operation, carried):
            self._able.add(operation)
        for output, own in zip(
            operation.outputs, operation.output_pending_axes(self._layouts.seen_by(operation)), strict=True
        ):
            if term_dtype(output.dtype) != output.dtype:  # done at once
                self._own[output] = ()
                continue
            axes = frozenset(own).union(*carried) if operation in self._able else frozenset(own)
            self._own[output] = own
            if axes:
                self._candidates[output] = axes

    def _leaves_slices_apart(self, operation: Operation, carried: Sequence[frozenset[str]]) -> bool:
        """Whether no output is split over an axis of a pending sum. The cores along such an axis would not hold terms
        of one sum."""
        axes = frozenset().union(*carried)
        layouts = self._layouts.seen_by(operation)
        return operation.takes_any_layout or not any(axes & layouts[t].used for t in operation.outputs)

    def is_able_to_pass(self, operation: Operation) -> bool:
        """Whether the operation could take inputs as they are, with their sums pending."""
        return operation in self._able

    def _components(self) -> Iterable[list[Operation]]:
        """Groups of operations that are connected by tensors whose pending sums an operation could pass."""
        passing = [o for o in self._operations if self.is_able_to_pass(o)]
        ties = networkx.Graph()
        ties.add_nodes_from(passing)
        for operation in passing:
            for x in operation.inputs:
                if x in self._candidates:
                    ties.add_edges_from(
                        (operation, other) for other in self._consumers[x] if self.is_able_to_pass(other)
                    )
                    if self.is_able_to_pass(x.operation):
                        ties.add_edge(operation, x.operation)
        order = {operation: i for i, operation in enumerate(passing)}
        for component in networkx.connected_components(ties):
            yield sorted(component, key=order.__getitem__)

    def _solve(self, component: list[Operation]) -> None:
        # The source side is pending. If there are several minimum cuts, networkx returns the one with the largest
        # source side: its far side has only the nodes that still reach the end. So sums are done as late as possible.
        cut = networkx.DiGraph()
        cut.add_nodes_from([_START, _END])
        tensors = {x: None for o in component for x in (*o.inputs, *o.outputs) if x in self._candidates}
        for tensor in tensors:
            self._add_tensor(cut, tensor)
        for operation in component:
            self._add_masks(cut, operation)
        _, (pending, _) = networkx.minimum_cut(cut, _START, _END)
        self._passing.update(o for o in component if o in pending)

    def _add_tensor(self, cut: networkx.DiGraph, tensor: Tensor) -> None:
        # Edges from this node to consumers have no capacity attribute, so no cut crosses them. A cut pays for the
        # tensor's sum once, on the edge before this node, however many consumers need it.
        reduction = ("reduction", tensor)
        own, whole = self._own[tensor], self._reduction_bytes(tensor)
        # An operation's own sum is pending in any case. It costs more if the pending axes of its inputs are added.
        in_any_case = min(whole, self._reduction_bytes(tensor, frozenset(own))) if own else 0
        if tensor in self._accumulated and not self._consumers.get(tensor):  # the sum is done once, after the loop
            whole, in_any_case = whole // self._times, in_any_case // self._times
        if own:
            cut.add_edge(_START, reduction, capacity=in_any_case)
        if self.is_able_to_pass(tensor.operation) or not own:
            cut.add_edge(tensor.operation, reduction, capacity=whole - in_any_case)
        consumers = self._consumers.get(tensor, [])
        for consumer in consumers:
            cut.add_edge(reduction, consumer if self.is_able_to_pass(consumer) else _END)
        if tensor in self._fetches or not consumers:
            cut.add_edge(reduction, _END)

    def _add_masks(self, cut: networkx.DiGraph, operation: Operation) -> None:
        # A loop stacks results that are not read inside it, and sums them once, after its last iteration.
        if operation.prefers_sums_done and any(self._is_read(output) for output in operation.outputs):
            cut.add_edge(operation, _END, capacity=1 + _capacity(cut, operation, _END))
        if any(self._own[output] for output in operation.outputs):
            return
        for x in operation.inputs:
            # If the operation is pending and x is not, only one core may add x: the others mask it with zeros.
            cost = max(1, self._reduction_bytes(x) // _MASK_SHARE)
            producer = x.operation
            if x not in self._candidates:
                cut.add_edge(operation, _END, capacity=cost + _capacity(cut, operation, _END))
            elif not self._own[x]:
                cut.add_edge(operation, producer, capacity=cost + _capacity(cut, operation, producer))

    def _reduction_bytes(self, tensor: Tensor, over: frozenset[str] | None = None) -> int:
        pending = self._candidates.get(tensor, frozenset()) if over is None else over
        own = self._layouts[tensor]
        if not pending:
            size = tensor.dtype.size
            for n in own.slice_shape(tensor.shape, self._layouts.mesh_shape):
                size *= n
            return size
        source = TensorLayout(tuple(tuple(a for a in axes if a not in pending) for axes in own.axes))
        route = cheapest_route(source, tuple(pending), own, tensor.shape, tensor.dtype.size, self._layouts.mesh_shape)
        return route.bytes_sent


def block_sums(
    block: Block, whole: Iterable[Tensor], layouts: LayoutTable, accumulated: Iterable[Tensor] = (), times: int = 1
) -> PendingSums:
    """Decides where the sums of a block are done. The sums of its tensors `whole` are always done inside it.

    The block runs `times` times. A tensor `accumulated` over these runs may be left for one sum over cores at the end.
    The layout table caches the result, so that each enclosing block need not compute it again.
    """
    key = (block.operations, block.outputs)
    if key not in layouts.sums_of_blocks:
        layouts.sums_of_blocks[key] = PendingSums(
            needed_inside(block), whole, layouts, accumulated, times, block.outputs
        )
    return layouts.sums_of_blocks[key]


def needed_inside(block: Block) -> list[Operation]:
    """The operations of a block that its outputs or side effects need, in order."""
    wanted = {t.operation for t in block.outputs} | {o for o in block.operations if o.has_side_effect}
    for operation in reversed(block.operations):
        if operation in wanted:
            wanted.update(x.operation for x in operation.inputs)
            wanted.update(operation.dependencies)
    return [o for o in block.operations if o in wanted]


def _capacity(cut: networkx.DiGraph, tail: object, head: object) -> int:
    return cut.edges[tail, head]["capacity"] if cut.has_edge(tail, head) else 0
