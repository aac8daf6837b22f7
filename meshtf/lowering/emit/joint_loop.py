"""A loop that XLA compiles for all cores of a process as one: its collectives are arithmetic in the same function.

Virtual CPUs compute on one device. What each of them does in an iteration of decoding is hundreds of small operations,
and as many waits for the others as there are collectives. Here a tensor has the slices of all cores that hold different
ones: the operations are as many as those of one core, and nothing is waited for.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes, axes_size
from meshtf.lowering.emit.control_flow import emit_op_by_op, taken_apart
from meshtf.lowering.emit.core_program import CoreProgram, TracedCore
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByValue, VariableSlices
from meshtf.mesh_impl.blocks import reshaped
from meshtf.mesh_impl.spmd.joint_collectives import JointCollectives
from meshtf.planning import core_positions
from meshtf.planning.plan import Collective, Compute, Instruction, Loop, Plan, Value, free_values

_DONE_FOR_MANY = frozenset((
    "Abs", "AddV2", "All", "Any", "ArgMax", "BatchMatMulV2", "BroadcastTo", "Cast", "ClipByValue", "ConcatV2",
    "Const", "Cos", "Einsum", "Equal", "Exp", "ExpandDims", "Fill", "Floor", "FloorDiv", "Greater", "GreaterEqual",
    "Identity", "IsNan", "Less", "LessEqual", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "MatMul", "Max",
    "Maximum", "Min", "Minimum", "Mul", "Neg", "NotEqual", "Pack", "Pow", "Prod", "Range", "RealDiv", "Relu",
    "Reshape", "Rsqrt", "Select", "SelectV2", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Split", "SplitV", "Sqrt",
    "Square", "Squeeze", "StridedSlice", "Sub", "Sum", "Tanh", "TensorScatterUpdate", "Tile", "Transpose", "Unpack",
    "ZerosLike",
))  # fmt: skip
"""Operations that `tf.vectorized_map` does as they are. Of gathers, for one, it forgets what is to happen outside of
the table (TensorFlow 2.21); all others are done core by core."""


class JointLoop:
    """A loop of a plan as a function of what it uses from outside, for all cores: traced when first called."""

    def __init__(self, plan: Plan, loop: Loop) -> None:
        self._plan, self._loop = plan, loop
        self._holdings = Holdings(plan)
        self._run = tf.function(self._emitted, jit_compile=True, autograph=False)

    def __call__(self, slices: Sequence[Mapping[Value, tf.Tensor]]) -> list[dict[Value, tf.Tensor]]:
        """By core, what the loop makes of what it uses."""
        cores = {v: self._holdings.first_cores(self._holdings.axes(v)) for v in self._loop.inputs}
        results = self._run(*(tf.stack([slices[core][v] for core in own]) for v, own in cores.items()))
        made: list[dict[Value, tf.Tensor]] = [{} for _ in slices]
        for value, result in zip(self._loop.outputs, results, strict=True):
            parts = tf.unstack(result)
            positions = core_positions.positions(self._holdings.axes(value), self._plan.mesh_shape)
            for core, position in enumerate(positions):
                made[core][value] = parts[position]
        return made

    def _emitted(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        loop = self._loop
        program = JointProgram(self._plan, SlicesByValue({}))
        program.take(dict(zip(loop.inputs, slices, strict=True)))
        for value in taken_apart(loop.body) & set(loop.inputs):  # once, and not in each iteration
            program.parts[value] = program.parts_of(value)
        emit_op_by_op(program, loop)
        return [program.slices[v] for v in loop.outputs]


class Holdings:
    """Which cores of a plan hold different slices of a value."""

    def __init__(self, plan: Plan) -> None:
        self.mesh_shape = plan.mesh_shape
        self._unreduced = plan.unreduced

    def axes(self, value: Value) -> Axes:
        """Of the mesh, in its order, along which slices may differ."""
        if value in self._unreduced:
            return tuple(self.mesh_shape.dimension_names)
        return self.in_order({*itertools.chain(*value.layout.axes), *value.pending})

    def in_order(self, axes: set[str]) -> Axes:
        return tuple(name for name in self.mesh_shape.dimension_names if name in axes)

    def first_cores(self, axes: Axes) -> list[int]:
        """By position along the axes, the first of the cores that are there."""
        positions = core_positions.positions(axes, self.mesh_shape)
        return [int(np.argmax(positions == n)) for n in range(axes_size(axes, self.mesh_shape))]

    def coordinates(self, axes: Axes) -> np.ndarray:
        """Of those cores, along all axes of the mesh: int32 [cores, axes of the mesh]."""
        own = (core_positions.coordinates(core, self.mesh_shape).values() for core in self.first_cores(axes))
        return np.array([list(c) for c in own], np.int32).reshape(-1, self.mesh_shape.ndims)


class _AskedCore(TracedCore):
    """A core that remembers what it is asked about itself."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, tf.zeros([plan.mesh_shape.ndims], tf.int32))
        self.asked: set[str] = set()

    def coordinate(self, axes: Axes) -> tf.Tensor:
        self.asked.update(axes)
        return super().coordinate(axes)


class JointProgram(CoreProgram):
    """What all cores do: `slices` are [cores, ..], of those cores that may hold different ones.

    What is made of slices that are alike is alike: then one core makes it, and `_lean` has it for as many as differ.
    """

    def __init__(self, plan: Plan, variables: VariableSlices) -> None:
        self._holdings = Holdings(plan)
        self._mesh_shape = plan.mesh_shape
        facts = PlanFacts.of(plan, writes_in_place=False)
        super().__init__(facts, _AskedCore(plan), JointCollectives(plan.mesh_shape, ()), variables)
        self.unrolls_loops = True
        self._lean: dict[Value, tuple[Axes, tf.Tensor]] = {}
        self._functions: dict[Hashable, Callable[..., list[tf.Tensor]] | None] = {}
        self._by_core: dict[tuple[Compute, Axes], Callable[..., list[tf.Tensor]]] = {}
        self._needs: dict[Compute, tuple[set[str], bool]] = {}

    def inside(self, given: Mapping[Value, tf.Tensor]) -> JointProgram:
        inner = super().inside({})
        assert isinstance(inner, JointProgram)
        inner._lean = dict(self._lean)
        inner.take(given)
        return inner

    def take(self, results: Mapping[Value, tf.Tensor | list[tf.Tensor]]) -> None:
        for value, result in results.items():
            if isinstance(result, list):
                self.parts[value], result = result, tf.stack(result, axis=1)
            if result.shape.rank == len(value.slice_shape):  # numbers of control flow
                result = result[tf.newaxis]
            self._hold(value, self._holdings.axes(value), result)

    def shape_of(self, value: Value) -> tuple[int, ...]:
        return (axes_size(self._holdings.axes(value), self._mesh_shape), *value.slice_shape)

    def parts_of(self, value: Value) -> list[tf.Tensor]:
        return self.parts[value] if value in self.parts else tf.unstack(self.slices[value], axis=1)

    def stack_of(self, array: tf.TensorArray) -> tf.Tensor:
        stacked = array.stack()
        return tf.transpose(stacked, [1, 0, *range(2, stacked.shape.rank)])

    def part(self, value: Value, index: tf.Tensor, dim: int) -> tf.Tensor:
        return tf.gather(self.slices[value], index, axis=dim + 1)

    def scalar(self, value: Value) -> tf.Tensor:
        return self.slices[value][0]

    def emit(self, instructions: Sequence[Instruction]) -> None:
        """Local work that follows one another on the same cores is done for all of them in one go."""
        together: list[Compute] = []
        where: Axes = ()
        for instruction in instructions:
            if not isinstance(instruction, Compute):
                self._compute_together(together, where)
                together = []
                super().emit([instruction])
                continue
            asked, is_done_for_many = self._needs_of(instruction)
            made = {v for i in together for v in i.outputs}
            axes = asked.union(*(where if v in made else self._lean[v][0] for v in instruction.inputs))
            own = self._holdings.in_order(axes)
            is_product = bool(instruction.facts.products)
            if own != where or is_product or not is_done_for_many or any(i.facts.products for i in together):
                self._compute_together(together, where)
                together, where = [], own
            if is_done_for_many:
                together.append(instruction)
            else:
                self._compute_by_core(instruction, own)
        self._compute_together(together, where)

    def collective(self, instruction: Collective) -> None:
        step, value = instruction.step, instruction.input
        everywhere = tuple(self._mesh_shape.dimension_names)
        axes = everywhere if step.destinations else self._holdings.in_order({*self._lean[value][0], *step.axes})
        collectives = JointCollectives(self._mesh_shape, axes)
        result = step.emit(collectives, self._held_by(value, axes))
        self._hold(instruction.output, collectives.axes, result)

    def _hold(self, value: Value, axes: Axes, x: tf.Tensor) -> None:
        """From now on the value is x, by cores that differ along the axes."""
        own = self._holdings.axes(value)
        lean = self._holdings.in_order({*axes} & {*own})
        self._lean[value] = (lean, self._of_first(x, axes, lean))
        self.slices[value] = self._held_by(value, own)

    def _held_by(self, value: Value, axes: Axes) -> tf.Tensor:
        """The value by cores that differ along these axes, among others than those along which it differs."""
        own, x = self._lean[value]
        if own == axes:
            return x
        mesh_shape, sizes = self._mesh_shape, x.shape.as_list()[1:]
        apart = tf.reshape(x, [*(axes_size((a,), mesh_shape) if a in own else 1 for a in axes), *sizes])
        whole = tf.broadcast_to(apart, [*(axes_size((a,), mesh_shape) for a in axes), *sizes])
        return tf.reshape(whole, [axes_size(axes, mesh_shape), *sizes])

    def _of_first(self, x: tf.Tensor, axes: Axes, kept: Axes) -> tf.Tensor:
        """Of slices that are alike along the other axes, one each."""
        if kept == axes:
            return x
        mesh_shape, sizes = self._mesh_shape, x.shape.as_list()[1:]
        apart = tf.reshape(x, [*(axes_size((a,), mesh_shape) for a in axes), *sizes])
        first = apart[tuple(slice(None) if a in kept else 0 for a in axes)]
        return tf.reshape(first, [axes_size(kept, mesh_shape), *sizes])

    def _needs_of(self, instruction: Compute) -> tuple[set[str], bool]:
        """Along which axes it asks where a core is, and whether TensorFlow does its operations rightly for many."""
        if instruction not in self._needs:
            with tf.Graph().as_default() as graph:
                core = _AskedCore(self._plan)
                _on_core(core, [instruction], {v: tf.zeros(v.slice_shape, v.dtype) for v in instruction.inputs})
            fits = {o.type for o in graph.get_operations()} <= _DONE_FOR_MANY
            self._needs[instruction] = (core.asked, fits)
        return self._needs[instruction]

    def _compute_together(self, together: Sequence[Compute], axes: Axes) -> None:
        """All of these, on cores that differ along the axes."""
        if not together:
            return
        own = free_values(together, set(), [])
        asks = any(self._needs_of(i)[0] for i in together)
        # What differs where a slice begins cannot be cut out of one tensor for all.
        held = [axes if asks else self._lean[v][0] for v in own]
        # Broadcast, a weight would be read anew by each core, which takes longer than its product.
        is_product = any(i.facts.products for i in together) and any(h not in ((), axes) for h in held)
        levels = [(axis,) for axis in axes] if is_product else [axes] if axes else []
        given = [self._apart(v, [level for level in levels if {*level} & {*h}]) for v, h in zip(own, held, strict=True)]
        key = (tuple(together), tuple(held), tuple(levels))
        if key not in self._functions:  # layers, which are emitted one after the other, share one
            run = functools.partial(self._on_cores, tuple(together), own, held, levels, {})
            self._functions[key] = _traced(lambda *slices: run(slices), given)
        function = self._functions[key]
        if function is None:  # what is the same on all cores cannot be cut at places that differ
            for instruction in together:
                self._compute_by_core(instruction, axes)
            return
        results = function(*given)
        for value, result in zip((v for i in together for v in i.outputs), results, strict=True):
            self._hold(value, axes, reshaped(result, [axes_size(axes, self._mesh_shape), *value.slice_shape]))

    def _on_cores(
        self,
        together: Sequence[Compute],
        own: Sequence[Value],
        held: Sequence[Axes],
        levels: Sequence[Axes],
        coordinates: Mapping[str, tf.Tensor],
        slices: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """What cores make that differ along these levels of axes: along the first, all at once."""
        if not levels:
            core = TracedCore(self._plan, tf.stack([coordinates.get(n, 0) for n in self._mesh_shape.dimension_names]))
            return list(_on_core(core, together, dict(zip(own, slices, strict=True))).values())
        axes, *rest = levels
        differ = [n for n, h in enumerate(held) if {*axes} & {*h}]
        positions = self._holdings.coordinates(axes)

        @tf.autograph.experimental.do_not_convert
        def on_one(arguments: Any) -> list[tf.Tensor]:
            position = tf.unstack(arguments[0])
            here = {name: position[self._mesh_shape.dimension_names.index(name)] for name in axes}
            given = dict(zip(differ, arguments[1:], strict=True))
            there = [given.get(n, x) for n, x in enumerate(slices)]
            return self._on_cores(together, own, held, rest, {**coordinates, **here}, there)

        return tf.vectorized_map(
            on_one, [tf.constant(positions), *(slices[n] for n in differ)], fallback_to_while_loop=False
        )

    def _apart(self, value: Value, levels: Sequence[Axes]) -> tf.Tensor:
        """[cores of a level, of another, .., ..]."""
        x = self._held_by(value, tuple(axis for level in levels for axis in level))
        return reshaped(x, [*(axes_size(level, self._mesh_shape) for level in levels), *value.slice_shape])

    def _compute_by_core(self, instruction: Compute, axes: Axes) -> None:
        def on_each(*given: tf.Tensor) -> list[tf.Tensor]:
            each = []
            for number, position in enumerate(self._holdings.coordinates(axes)):
                core = TracedCore(self._plan, tf.constant(position))
                slices = {v: x[number] for v, x in zip(instruction.inputs, given, strict=True)}
                each.append(_on_core(core, [instruction], slices))
            return [tf.stack([made[value] for made in each]) for value in instruction.outputs]

        if (instruction, axes) not in self._by_core:
            self._by_core[instruction, axes] = tf.function(on_each, autograph=False)
        results = self._by_core[instruction, axes](*(self._held_by(v, axes) for v in instruction.inputs))
        for value, result in zip(instruction.outputs, results, strict=True):
            self._hold(value, axes, result)


def _traced(run: Callable[..., list[tf.Tensor]], given: Sequence[tf.Tensor]) -> Callable[..., list[tf.Tensor]] | None:
    """A function of tensors like those given; None where TensorFlow cannot do it for many cores.

    It is traced outside of what XLA compiles: inside, each `tf.vectorized_map` makes another function, by AutoGraph.
    """
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in given]
    with tf.init_scope():
        try:
            return tf.function(run, autograph=False).get_concrete_function(*specs)
        except ValueError:
            return None


def _on_core(
    core: TracedCore, instructions: Sequence[Compute], slices: Mapping[Value, tf.Tensor]
) -> dict[Value, tf.Tensor]:
    """What a core makes of slices."""
    made: dict[Value, tf.Tensor] = {}
    for instruction in instructions:
        results = instruction.emit(core, *(made[v] if v in made else slices[v] for v in instruction.inputs))
        made.update(zip(instruction.outputs, [results] if isinstance(results, tf.Tensor) else results, strict=True))
    return made
