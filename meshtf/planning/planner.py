"""From a graph to a plan: what operations call while they are lowered.

A tensor is held in versions. x [batch:8/rows width:8], read once as it is and once as [batch:8 width:8] by two
operations, has two: the slices, and what one allgather made of them; a third reader of the whole gets the second
version, and nothing is sent. A product whose contracted dimension is split writes a version with a sum pending, which
the first reader that needs the sum has done, in the layout that it wants: the planner adds that collective in front of
the reader, on behalf of the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning import core_positions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import ZEROS, Fill, uneven_dims
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.local_work.wide_terms import made_wide, term_dtype
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.moves.padded_moves import filled, moved_with_padding, without_padding
from meshtf.planning.moves.reshard import LocalSlice, Route, cheapest_route
from meshtf.planning.open_check import OpenCheck
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import (
    AssignVariable,
    Check,
    Collective,
    Compute,
    Core,
    Emit,
    Feed,
    FeedCheck,
    Instruction,
    OutputSpec,
    Plan,
    ReadVariable,
    Value,
)
from meshtf.planning.process_spans import ProcessOfCore, split_over_processes
from meshtf.planning.stored_variables import Storage, StoredVariable


class Planner:
    """Collects instructions. An operation reads its inputs, adds local work, and writes its outputs.

    A tensor may be held in several versions (as it was computed, gathered, ...). Communication happens when a version
    is first read in a layout that is not there yet, and is never repeated for the same tensor and layout.
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
    ) -> None:
        self._table = layouts
        self._process_of_core = process_of_core
        self.finds_failures = finds_failures
        """Whether checks are to say where they fail, which a step that goes well need not know."""
        self.iterations: tuple[Value, ...] = ()
        """The numbers of the iterations of the loops around, outermost first (int32 scalars)."""
        self.layers: tuple[Value, ...] = ()
        """The same for loops over the layers of stacks, whose numbers stand in for those in unrolled layers' names."""
        self.microbatches: tuple[tuple[MicrobatchCut, Value], ...] = ()
        """How a batch is cut into micro-batches, and the number of this one, innermost first."""
        self._storage = storage
        self._seed = seed
        self.mesh_shape = layouts.mesh_shape
        self.uses_random = False
        self._pending_sums = pending_sums
        self._instructions: list[Instruction] = []
        self._versions: dict[Tensor, list[Value]] = {}
        # Tensors may share a value, as a tensor and its copy in another layout do.
        self._moved: dict[tuple[Value, object], Value] = {}
        self._variables: dict[str, Value] = {}
        self._assigned: dict[str, tuple[Operation, Value]] = {}
        self._checks: list[OpenCheck] = []
        self._feed_checks: list[FeedCheck] = []
        self._closed: dict[OpenCheck, Check] = {}
        self._operation: Operation | None = None
        self._numbers = itertools.count()
        self._outside: Planner | None = None
        self._borrowed: frozenset[Tensor] = frozenset()
        self._leaving: Mapping[Tensor, Tensor] = {}
        self._from_outside: set[Value] = set()

    @property
    def layouts(self) -> LayoutTable:
        """The tensors' layouts, as the operation that is being lowered is to see them."""
        return self._table.seen_by(self._operation)

    def lower(self, operation: Operation) -> None:
        """Lowers one operation; its inputs must have been lowered."""
        self._operation = operation
        operation.lower(self)

    def plan(self, fetches: Sequence[Tensor]) -> Plan:
        """The finished plan, which returns these tensors, each in its own layout, and then what checks have found."""
        values = []
        for tensor in fetches:
            self._operation = tensor.operation
            values.append(self.read(tensor, fill=None))
        for name, (operation, value) in self._assigned.items():
            self._instructions.append(AssignVariable(operation, name, value))
        checks = [self._closed[check] for check in self._checks]
        values.extend(check.finding.value for check in checks if check.finding is not None)
        planned = tuple(self._instructions), tuple(values), tuple(checks)
        return Plan(self.mesh_shape, *planned, self.uses_random, feed_checks=tuple(self._feed_checks))

    # Nesting: the bodies of loops and branches

    def inside(
        self,
        pending_sums: PendingSums,
        borrowed: Iterable[Tensor] = (),
        leaving: Mapping[Tensor, Tensor] | None = None,
    ) -> Planner:
        """A planner for instructions that run inside one of this planner's.

        What is `borrowed` from this one is brought here, outside, into the layouts that are wanted inside: once, and
        not in every iteration. `leaving` says what tensors of the block are called outside, in their own shape.
        """
        inner = Planner(self._table, pending_sums, self._storage, self._seed, finds_failures=self.finds_failures)
        inner.iterations, inner.layers, inner.microbatches = self.iterations, self.layers, self.microbatches
        inner._numbers = self._numbers
        inner._outside = self
        inner._operation = self._operation
        inner._borrowed = frozenset(borrowed)
        inner._leaving = leaving or {}
        return inner

    def value(self, shape: Shape, dtype: tf.DType, layout: TensorLayout, pending: Axes = ()) -> Value:
        """A value that an instruction added with `add` makes, or that a block is given."""
        return self._value(shape, dtype, layout, pending)

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction made by the operation being lowered."""
        self._instructions.append(instruction)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(self._instructions)

    @property
    def assigned(self) -> dict[str, Value]:
        """New values of variables, by name."""
        return {name: value for name, (_, value) in self._assigned.items()}

    @property
    def checks(self) -> tuple[OpenCheck, ...]:
        """Of a block: what surrounds it takes them up."""
        return tuple(self._checks)

    def give(self, tensor: Tensor, value: Value) -> None:
        """Says that `tensor`, made outside, is `value` here."""
        self._versions[tensor] = [value]

    def attribute_to(self, operation: Operation) -> None:
        """What is added from here on is for this operation."""
        self._operation = operation

    def set_stored(self, name: str, value: Value) -> None:
        """Says that `value` is a variable's present value, without assigning it."""
        self._variables[name] = value

    # Reading

    def read(self, tensor: Tensor, layout: TensorLayout | None = None, fill: Fill | None = ZEROS) -> Value:
        """The tensor's value with no sum pending, in `layout` (by default the tensor's own).

        `fill` is what stands beyond the ends of dimensions that are padded; None: anything.
        """
        if tensor in self._borrowed:
            return self._done_outside(lambda outside: outside.read(tensor, layout, fill))
        own = self.layouts[tensor]
        wanted = own if layout is None else layout
        versions = self._versions[tensor]
        if wanted != own and versions[0].pending and len(versions) == 1 and self._pending_sums.is_needed_whole(tensor):
            self.read(tensor)
        source, _ = min(
            (self._route(v, wanted) for v in versions), key=lambda found: (found[1].bytes_sent, len(found[1].steps))
        )
        reader = self._operation
        if source.pending:
            # A sum is done for the operation that left it pending, not for the one that happens to read it first.
            self._operation = tensor.operation
        value = self.reshard(source, wanted)
        self._operation = reader
        if value is not source:
            versions.append(value)
        return self.filled(value, fill)

    def filled(self, value: Value, fill: Fill | None) -> Value:
        """The value with what is wanted beyond the ends of dimensions that are padded; None: as it is."""
        if fill is None or self._is_even(value):
            return value
        if value in self._from_outside:
            return self._done_outside(lambda outside: outside.filled(value, fill))
        return filled(self, value, fill)

    def whole_versions(self, tensor: Tensor) -> list[Value]:
        """All that is held of the tensor with no sum pending, in any layout; at least one."""
        self._whole(tensor)
        return [v for v in self._versions_of(tensor) if not v.pending and self._is_seen(v)]

    def bytes_to_read(self, tensor: Tensor, layout: TensorLayout) -> int:
        """What each core would send for `read`."""
        return min(self._route(value, layout)[1].bytes_sent for value in self._versions_of(tensor))

    def consumers(self, tensor: Tensor) -> Sequence[Operation]:
        """The operations that read the tensor: none, where it is only fetched."""
        return self._pending_sums.consumers(tensor)

    def layout_wanted_by_readers(self, tensor: Tensor) -> TensorLayout | None:
        """The layout in which everything that uses the tensor works; None where that is not one, or not known.

        Looked for behind what takes a tensor as it is held, as an override does, and where the tensor leaves a block.
        """
        wanted = {*self._layouts_wanted(tensor)}
        return wanted.pop() if len(wanted) == 1 else None

    def _layouts_wanted(self, tensor: Tensor) -> Iterator[TensorLayout | None]:
        readers = self.consumers(tensor)
        for reader in readers:
            made = next((y for y in reader.outputs if y.shape == tensor.shape), None)
            if made is not None and reader.takes_any_layout:
                yield from self._layouts_wanted(made)
            else:
                yield None if made is None else self.layouts[made]
        if tensor in self._leaving:
            assert self._outside is not None
            yield from self._outside._layouts_wanted(self._leaving[tensor])
        elif not readers:
            yield self.layouts[tensor]

    def is_used(self, tensor: Tensor) -> bool:
        """Whether anything reads or fetches the tensor: one of several outputs that is not need not be written."""
        return self._pending_sums.is_used(tensor)

    def read_operands_as_they_are(self, operation: Operation, fill: Fill | None = ZEROS) -> list[Value]:
        """The inputs in whatever layout they are held, pending where the operation passes pending sums on."""
        if self._pending_sums.is_passed_by(operation):
            held = [self._versions_of(x)[0] for x in operation.inputs]
            return [self.filled(v if self._is_seen(v) else without_padding(self, v), fill) for v in held]
        return [self.filled(self._whole(x), fill) for x in operation.inputs]

    def held(self, tensor: Tensor) -> Value:
        """The tensor as it is held, in any layout and perhaps pending: to wait for it, not to compute with it."""
        return self._versions_of(tensor)[0]

    def found(self, tensor: Tensor) -> Value | None:
        """As `held`, of a tensor that may be outside, or in a block that cannot be seen from here (None)."""
        if tensor in self._versions:
            return self._versions[tensor][0]
        return self._outside.found(tensor) if self._outside is not None else None

    def left(self, tensor: Tensor) -> Value:
        """What a block leaves to its readers: with no sum pending where that is there already, else as it is held."""
        whole = [v for v in self._versions_of(tensor) if not v.pending]
        own = [v for v in whole if v.layout == self.layouts[tensor]]
        return (own or whole or self._versions_of(tensor))[0]

    def _whole(self, tensor: Tensor) -> Value:
        """Some version with no sum pending."""
        whole = [v for v in self._versions_of(tensor) if not v.pending and self._is_seen(v)]
        return whole[0] if whole else self.read(tensor, fill=None)

    def _versions_of(self, tensor: Tensor) -> list[Value]:
        if tensor in self._borrowed and tensor not in self._versions:
            assert self._outside is not None
            self._versions[tensor] = [self._outside._whole(tensor)]
            self._from_outside.update(self._versions[tensor])
        return self._versions[tensor]

    def _done_outside(self, move: Callable[[Planner], Value]) -> Value:
        """What the planner outside this block gives, on behalf of the operation being lowered here."""
        outside = self._outside
        assert outside is not None
        asking, outside._operation = outside._operation, self._operation
        value = move(outside)
        outside._operation = asking
        self._from_outside.add(value)
        return value

    def read_operands(
        self, operation: Operation, layouts: Sequence[TensorLayout], fill: Fill | None = ZEROS
    ) -> list[Value]:
        """The inputs of an operation that passes pending sums, in these layouts, padded with `fill`.

        Where the operation was chosen to leave sums to its consumers, all the values returned are pending over the
        same mesh axes; else none is.
        """
        if not self._pending_sums.is_passed_by(operation):
            return [self.read(x, layout, fill) for x, layout in zip(operation.inputs, layouts, strict=True)]
        values = [
            self.filled(value, fill) if value.pending and value.layout == layout else self.read(x, layout, fill)
            for x, layout in zip(operation.inputs, layouts, strict=True)
            for value in [self._versions_of(x)[0]]
        ]
        axes = tuple(d.name for d in self.mesh_shape if any(d.name in v.pending for v in values))
        assert not any(set(axes) & v.layout.used for v in values), (operation, axes, *map(str, values))
        return [self._made_pending(v, axes) for v in values]

    # Adding instructions

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

        `kind` is what reports call it. `facts` are what passes may know of it; by default they assume nothing.
        """
        specs = [spec if len(spec) == 4 else (*spec, pending) for spec in outputs]
        dtypes = [term_dtype(dtype) if left else dtype for _, dtype, _, left in specs]
        if any(dtype != spec[1] for dtype, spec in zip(dtypes, specs, strict=True)):
            emit = made_wide(emit, dtypes)
        values = tuple(self._value(s[0], dtype, s[2], s[3]) for dtype, s in zip(dtypes, specs, strict=True))
        self._instructions.append(Compute(self._current, kind, tuple(inputs), values, emit, flops, facts))
        return values

    def all_reduce(self, value: Value, axes: Axes, reduction: Reduction) -> Value:
        """Combines ("max", "min", "multiply", "add") the values of the cores along these mesh axes."""
        axes = tuple(a for a in axes if self._axis_size(a) > 1)
        if not axes:
            return value
        return self.collective(AllReduce(axes, reduction), value, value.layout, value.pending)

    def collective(self, step: CollectiveStep, value: Value, layout: TensorLayout, pending: Axes = ()) -> Value:
        """Adds communication; `layout` and `pending` are those of what it leaves."""
        if value in self._from_outside:
            return self._done_outside(lambda outside: outside.collective(step, value, layout, pending))
        output = self._value(value.shape, value.dtype, layout, pending)
        self._instructions.append(Collective(self._current, step, value, output))
        return output

    def once(self, value: Value, key: object, make: Callable[[], Value]) -> Value:
        """What `make` gives; when the same is asked of a value again, what it gave the first time."""
        if (value, key) not in self._moved:
            self._moved[value, key] = make()
        return self._moved[value, key]

    def all_gather(self, value: Value, dim: int) -> Value:
        """The value with one dimension whole on every core; sums stay pending."""
        axes, own = value.layout.axes, value.layout.axes[dim]
        if self._parts(own) == 1:
            return value
        layout = TensorLayout((*axes[:dim], (), *axes[dim + 1 :]))
        return self.collective(AllGather(own, dim), value, layout, value.pending)

    def permute(self, value: Value, axes: Axes, place: Callable[[int], int]) -> Value:
        """Each core's slice goes to position `place(its own)` along these mesh axes; sums stay pending."""
        destinations = core_positions.destinations(axes, place, self.mesh_shape)
        if destinations == tuple(range(len(destinations))):
            return value
        in_order = tuple(d.name for d in self.mesh_shape if d.name in axes)
        step = Permute(in_order, destinations)
        return self.collective(step, value, value.layout, value.pending)

    def reduce_pending(self, value: Value) -> Value:
        """The value with its pending sums done, in its own layout."""
        return self.reshard(value, value.layout)

    def reshard(self, value: Value, layout: TensorLayout) -> Value:
        """The value in another layout with its pending sums done, by the cheapest route."""
        if value.layout == layout and not value.pending:
            return value
        if self._is_even(value) and not uneven_dims(layout, value.shape, self.mesh_shape):
            return self.take_route(value, layout)
        if value in self._from_outside:
            return self._done_outside(lambda outside: outside.reshard(value, layout))
        return moved_with_padding(self, value, layout)

    def take_route(self, value: Value, layout: TensorLayout) -> Value:
        """The cheapest steps to a layout; those that were taken from the same value before are not taken again."""
        _, route = self._route(value, layout)
        taken = zip(route.steps, route.states, strict=True)
        for is_slice, group in itertools.groupby(
            taken, key=lambda step_and_state: isinstance(step_and_state[0], LocalSlice)
        ):
            if is_slice:
                steps, states = zip(*group, strict=True)
                if (value, steps) not in self._moved:
                    self._moved[value, steps] = self._local_slice(value, TensorLayout(states[-1].axes), steps)
                value = self._moved[value, steps]
                continue
            for step, state in group:
                assert not isinstance(step, LocalSlice)
                if (value, step) not in self._moved:
                    layout = TensorLayout(state.axes)
                    self._moved[value, step] = self.collective(step, value, layout, state.pending)
                value = self._moved[value, step]
        return value

    def write(self, tensor: Tensor, value: Value) -> None:
        """Says that `value` is `tensor`. It may be in another layout than the tensor's, or pending."""
        if value.dtype == term_dtype(tensor.dtype):
            value = self._rounded(value, tensor)
        assert (value.shape, value.dtype) == (tensor.shape, tensor.dtype), (tensor, str(value))
        assert self._is_seen(value), f"{self._operation!r} does not know of padding, and gives {value}"
        self._versions[tensor] = [value]

    def feed(self, name: str, tensor: Tensor, *, is_known: bool) -> None:
        """Says that `tensor` is handed to the program under this name.

        A value that all processes know is whole on every core. Of any other input a process has its own part alone, so
        that what is split over processes is handed over in slices.
        """
        known_to = () if is_known else self._process_of_core
        layout = split_over_processes(self.layouts[tensor], self.mesh_shape, known_to)
        value = self._value(tensor.shape, tensor.dtype, layout, ())
        self._instructions.append(Feed(tensor.operation, name, value))
        self.write(tensor, value)

    def stored_layout(self, variable: StoredVariable) -> TensorLayout:
        """The layout in which a variable is kept between steps."""
        return self._storage.layout(variable, self._table)

    def stored(self, variable: StoredVariable) -> Value:
        """The variable's present value: what was assigned last, or what it was when the program started."""
        name = variable.full_name
        if name not in self._variables and self._outside is not None:
            self._variables[name] = self._outside.stored(variable)
        if name not in self._variables:
            value = self._value(variable.shape, variable.slice_dtype, self.stored_layout(variable), ())
            self._instructions.append(ReadVariable(self._current, name, value))
            self._variables[name] = value
        return self._variables[name]

    def random_key(self, name: str) -> random.Key:
        """The key of a random operation, from the program's seed and the operation's scope path and name."""
        self.uses_random = True
        return random.fold_in(random.fold_in((0, 0), self._seed), random.stable_hash(name))

    def assign(self, name: str, value: Value) -> None:
        """Makes `value` the variable's present value; it is stored once, when the program ends."""
        self._variables[name] = value
        self._assigned.pop(name, None)
        self._assigned[name] = (self._current, value)

    def check(self, check: OpenCheck) -> None:
        """Makes the program's assignments depend on a check, once what surrounds this block has taken it up.

        The sum over cores stands right behind the check, so that updates need not wait for the end of the program.
        """
        self._checks.append(check)
        if self._outside is None:
            before, self._operation = self._operation, check.operation
            self._closed[check] = check.closed(self.reduce_pending(check.failures), self.compute)
            self._operation = before

    @property
    def is_program(self) -> bool:
        """Whether this plans the program itself, and not a block in it, which may run often or never."""
        return self._outside is None

    def check_feed(self, check: FeedCheck) -> None:
        """Makes the whole step depend on a check of what it is fed."""
        self._feed_checks.append(check)

    # Inside

    @property
    def _current(self) -> Operation:
        assert self._operation is not None
        return self._operation

    def _parts(self, axes: Axes) -> int:
        return axes_size(axes, self.mesh_shape)

    def _axis_size(self, axis: str) -> int:
        return self.mesh_shape.get_dim_by_name(axis).size

    def _value(self, shape: Shape, dtype: tf.DType, layout: TensorLayout, pending: Axes) -> Value:
        size = layout.slice_shape(shape, self.mesh_shape)
        return Value(next(self._numbers), shape, dtype, layout, pending, size)

    def _rounded(self, value: Value, tensor: Tensor) -> Value:
        """The value in the tensor's dtype, where it was made in a wider one, with its pending sums done."""
        if value.dtype == tensor.dtype:
            return value
        whole, dtype = value, tensor.dtype
        if value.pending:
            whole = self.reshard(value, self.layout_wanted_by_readers(tensor) or self.layouts[tensor])
        spec, facts = (whole.shape, dtype, whole.layout), WorkFacts(is_cast=True)
        return self.compute("cast", lambda core, x: tf.cast(x, dtype), [whole], [spec], facts=facts)[0]

    def _route(self, value: Value, layout: TensorLayout) -> tuple[Value, Route]:
        route = cheapest_route(value.layout, value.pending, layout, value.shape, value.dtype.size, self.mesh_shape)
        return value, route

    def _is_even(self, value: Value) -> bool:
        return not uneven_dims(value.layout, value.shape, self.mesh_shape)

    def _is_seen(self, value: Value) -> bool:
        """Whether the operation being lowered may have the value as it is."""
        dims = uneven_dims(value.layout, value.shape, self.mesh_shape)
        return not any(self._current.needs_whole(value.shape[dim].name) for dim in dims)

    def _local_slice(self, value: Value, layout: TensorLayout, steps: Sequence[LocalSlice]) -> Value:
        if value in self._from_outside:
            return self._done_outside(lambda outside: outside._local_slice(value, layout, steps))
        size, sizes = layout.slice_shape(value.shape, self.mesh_shape), value.slice_shape
        cuts = []
        for step in steps:
            sizes = tuple(n // self._parts(step.axes) if i == step.dim else n for i, n in enumerate(sizes))
            cuts.append((step.dim, step.axes, sizes[step.dim]))

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.slice(x, core.begin(len(size), tuple(cuts)), size)

        spec, facts = (
            (value.shape, value.dtype, layout),
            WorkFacts(only_moves=True, is_trivial=True, takes_own_slice=True),
        )
        return self.compute("slice", emit, [value], [spec], pending=value.pending, facts=facts)[0]

    def _made_pending(self, value: Value, axes: Axes) -> Value:
        """The value as a term of a sum over `axes`: itself on the first core along the missing axes, else zero."""
        missing = tuple(a for a in axes if a not in value.pending)
        if not missing:
            return value

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.equal(core.coordinate(missing), 0), x, tf.zeros([], x.dtype))

        spec = (value.shape, value.dtype, value.layout)
        return self.compute("first term", emit, [value], [spec], pending=axes, flops=math.prod(value.slice_shape))[0]
