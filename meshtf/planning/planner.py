"""The planner, which operations call while they are lowered from a graph to a plan.

A tensor is held in versions. Let one operation read x [batch:8/rows width:8] as it is, and another as [batch:8
width:8]. Then x has two versions: the slices, and the result of an allgather of them. A third reader that needs x whole
receives the second version, and nothing is sent.

A product whose contracted dimension is split writes a version with a sum pending. When the first reader needs the sum,
the planner adds a collective in front of that reader, on behalf of the product. The result has the reader's layout.

`Planner` is the argument of an operation's `lower`. Most operations read, compute and write. The planner delegates to
these files:

- `plan_record.py`: the list of instructions;
- `lowering_state/`: versions of tensors, readers, variables, checks and enclosing loops;
- `moves/moved_values.py`: values in other layouts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import ZEROS, Fill
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.local_work.wide_terms import term_dtype
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.lowering_state.held_tensors import HeldTensors
from meshtf.planning.lowering_state.loops_around import LoopsAround
from meshtf.planning.lowering_state.planned_checks import PlannedChecks
from meshtf.planning.lowering_state.planned_variables import PlannedVariables
from meshtf.planning.lowering_state.tensor_readers import TensorReaders
from meshtf.planning.moves.moved_values import MovedValues
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Emit, Feed, OutputSpec, Plan, Value
from meshtf.planning.plan_record import PlanRecord
from meshtf.planning.process_spans import ProcessOfCore, split_over_processes
from meshtf.planning.stored_variables import Storage


@dataclasses.dataclass(frozen=True)
class _Surroundings:
    """The surroundings of a block whose operations a planner lowers; see `Planner.inside`."""

    outside: Planner
    borrowed: frozenset[Tensor]
    leaving: Mapping[Tensor, Tensor]


class Planner:
    """Lowers operations. An operation reads its inputs, adds local work, and writes its outputs.

    Communication happens when a tensor is first read in a layout in which it is not held yet. It is never repeated for
    the same tensor and layout.

    Attributes:
      record: the instructions so far, and the operation that is being lowered.
      tensors: the versions in which tensors are held.
      readers: the operations that read tensors, and the layouts that they need.
      moves: values in other layouts.
      variables: the present values of variables.
      checks: the checks on which assignments depend.
      loops: the iteration numbers of the enclosing loops.
      uses_random: whether an operation has requested a random key.
    """

    def __init__(
        self,
        layouts: LayoutTable,
        pending_sums: PendingSums,
        storage: Storage,
        seed: int = 0,
        *,
        finds_failures: bool = False,
        process_of_core: ProcessOfCore = (),
        block: _Surroundings | None = None,
    ) -> None:
        self._table, self._storage, self._seed = layouts, storage, seed
        self._process_of_core = process_of_core
        self.is_program = block is None
        """Whether this plans the program itself, and not a block in it, which may run often or never."""
        self.uses_random = False
        outside = None if block is None else block.outside
        self.record = PlanRecord(layouts.mesh_shape) if outside is None else outside.record.of_block()
        self.moves = MovedValues(self.record, outside and outside.moves)
        self.readers = TensorReaders(
            layouts, pending_sums, self.record, outside and outside.readers, None if block is None else block.leaving
        )
        self.tensors = HeldTensors(
            layouts,
            pending_sums,
            self.moves,
            outside and outside.tensors,
            frozenset() if block is None else block.borrowed,
        )
        self.variables = PlannedVariables(storage, layouts, self.record, outside and outside.variables)
        self.checks = PlannedChecks(self.moves, finds_failures, self.is_program)
        self.loops = LoopsAround() if outside is None else outside.loops

    @property
    def mesh_shape(self) -> Shape:
        return self.record.mesh_shape

    @property
    def layouts(self) -> LayoutTable:
        """The tensors' layouts, as the operation that is being lowered sees them."""
        return self._table.seen_by(self.record.operation)

    # From operations to a plan

    def lower(self, operation: Operation) -> None:
        """Lowers one operation; its inputs must have been lowered."""
        self.record.operation = operation
        operation.lower(self)

    def plan(self, fetches: Sequence[Tensor]) -> Plan:
        """The finished plan. It returns these tensors, each in its own layout, and then the findings of checks."""
        values = []
        for tensor in fetches:
            self.record.operation = tensor.operation
            values.append(self.read(tensor, fill=None))
        self.variables.store()
        checks = tuple(self.checks.closed)
        values.extend(check.finding.value for check in checks if check.finding is not None)
        planned = self.record.instructions, tuple(values), checks
        return Plan(self.mesh_shape, *planned, self.uses_random, feed_checks=tuple(self.checks.of_feeds))

    def inside(
        self,
        pending_sums: PendingSums,
        borrowed: Iterable[Tensor] = (),
        leaving: Mapping[Tensor, Tensor] | None = None,
    ) -> Planner:
        """A planner for the body of a loop or a branch, whose instructions run inside one of this planner's.

        The block's layouts of the tensors `borrowed` from this planner are made outside the block: once, and not in
        every iteration. `leaving` maps tensors of the block to the tensors of the same shape that they become outside.
        """
        block, finds_failures = _Surroundings(self, frozenset(borrowed), leaving or {}), self.checks.finds_failures
        return Planner(self._table, pending_sums, self._storage, self._seed, finds_failures=finds_failures, block=block)

    # What an operation reads

    def read(self, tensor: Tensor, layout: TensorLayout | None = None, fill: Fill | None = ZEROS) -> Value:
        """The tensor's value with no sum pending, in `layout` (by default the tensor's own).

        `fill` is the value of the padding, beyond the ends of dimensions; None: anything.
        """
        return self.tensors.read(tensor, layout, fill)

    def read_operands(
        self, operation: Operation, layouts: Sequence[TensorLayout], fill: Fill | None = ZEROS
    ) -> list[Value]:
        """The inputs of an operation that passes pending sums, in these layouts, padded with `fill`.

        If the operation leaves sums to its consumers, all values returned are pending over the same mesh axes. Else no
        value is pending.
        """
        return self.tensors.read_operands(operation, layouts, fill)

    def read_operands_as_they_are(self, operation: Operation, fill: Fill | None = ZEROS) -> list[Value]:
        """The inputs in whatever layout they are held, pending where the operation passes pending sums on."""
        return self.tensors.read_operands_as_they_are(operation, fill)

    def random_key(self, name: str) -> random.Key:
        """The key of a random operation, from the program's seed and the operation's scope path and name."""
        self.uses_random = True
        return random.fold_in(random.fold_in((0, 0), self._seed), random.stable_hash(name))

    # What it adds

    def compute(
        self,
        kind: str,
        emit: Emit,
        inputs: Sequence[Value],
        outputs: Sequence[OutputSpec],
        *,
        pending: Axes = (),
        flops: int = 0,
        facts: WorkFacts = NOTHING_KNOWN,
    ) -> tuple[Value, ...]:
        """Adds local work: `emit(core, *slices)` gives one slice, or a sequence where there are several outputs.

        `kind` is its name in reports. `facts` are the facts that passes may use; by default they assume nothing.
        """
        return self.record.compute(kind, emit, inputs, outputs, pending=pending, flops=flops, facts=facts)

    def collective(self, step: CollectiveStep, value: Value, layout: TensorLayout, pending: Axes = ()) -> Value:
        """Adds communication, and returns its result in `layout`, with sums over `pending` still pending."""
        return self.moves.collective(step, value, layout, pending)

    def all_reduce(self, value: Value, axes: Axes, reduction: Reduction) -> Value:
        """Combines ("max", "min", "multiply", "add") the values of the cores along these mesh axes."""
        return self.moves.all_reduce(value, axes, reduction)

    def all_gather(self, value: Value, dim: int) -> Value:
        """The value with one dimension whole on every core; sums stay pending."""
        return self.moves.all_gather(value, dim)

    def permute(self, value: Value, axes: Axes, place: Callable[[int], int]) -> Value:
        """Sends each core's slice to position `place(own position)` along these mesh axes. Sums stay pending."""
        return self.moves.permute(value, axes, place)

    def reshard(self, value: Value, layout: TensorLayout) -> Value:
        """The value in another layout with its pending sums done, by the cheapest route."""
        return self.moves.reshard(value, layout)

    def reduce_pending(self, value: Value) -> Value:
        """The value with its pending sums done, in its own layout."""
        return self.moves.reshard(value, value.layout)

    # What it writes

    def write(self, tensor: Tensor, value: Value) -> None:
        """Makes `value` the value of `tensor`. Its layout may differ from the tensor's, and its sum may be pending."""
        if value.dtype == term_dtype(tensor.dtype):
            value = self._rounded(value, tensor)
        assert (value.shape, value.dtype) == (tensor.shape, tensor.dtype), (tensor, str(value))
        assert self.tensors.is_seen(value), f"{self.record.operation!r} does not know of padding, and gives {value}"
        self.tensors.give(tensor, value)

    def feed(self, name: str, tensor: Tensor, *, is_known: bool) -> None:
        """Feeds `tensor` to the program under this name.

        A value that all processes have (`is_known`) is fed whole to every core. A process has only its own part of any
        other input, so an input that is split over processes is fed in slices.
        """
        known_to = () if is_known else self._process_of_core
        layout = split_over_processes(self.layouts[tensor], self.mesh_shape, known_to)
        value = self.record.value(tensor.shape, tensor.dtype, layout)
        self.record.add(Feed(tensor.operation, name, value))
        self.write(tensor, value)

    def _rounded(self, value: Value, tensor: Tensor) -> Value:
        """The value in the tensor's dtype, where it was made in a wider one, with its pending sums done."""
        if value.dtype == tensor.dtype:
            return value
        whole, dtype = value, tensor.dtype
        if value.pending:
            whole = self.reshard(value, self.readers.layout_wanted(tensor) or self.layouts[tensor])
        spec, facts = (whole.shape, dtype, whole.layout), WorkFacts(is_cast=True)
        return self.compute("cast", lambda core, x: tf.cast(x, dtype), [whole], [spec], facts=facts)[0]
