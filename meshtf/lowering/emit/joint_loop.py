"""A loop that XLA compiles for all cores of a process as one: its collectives are arithmetic in the same function.

Virtual CPUs compute on one device. What each of them does in an iteration of decoding is hundreds of small operations,
and as many waits for the others as there are collectives. Here a tensor has the slices of all cores that hold different
ones: the operations are as many as those of one core, and nothing is waited for.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes, axes_size
from meshtf.lowering.emit._joint_kernels import Kernel, KernelGraph, on_core
from meshtf.lowering.emit._traced_function import traced_function
from meshtf.lowering.emit.control_flow import emit_op_by_op, entering_in_parts, read_values
from meshtf.lowering.emit.core_program import CoreProgram, TracedCore
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.spread import NotSpreadError, Spread, Spreading
from meshtf.lowering.emit.variable_slices import SlicesByValue, VariableSlices
from meshtf.mesh_impl.blocks import reshaped
from meshtf.mesh_impl.spmd.joint_collectives import JointCollectives
from meshtf.planning import core_positions
from meshtf.planning.plan import Collective, Compute, Loop, Plan, Value


class JointLoop:
    """A loop of a plan as a function of what it uses from outside, for all cores: traced when first called."""

    def __init__(self, plan: Plan, loop: Loop) -> None:
        self._plan, self._loop = plan, loop
        self._holdings = Holdings(plan)
        self._apart = entering_in_parts(loop)
        read = read_values(plan)
        self._results = [v for v in loop.outputs if v in read]

    @functools.cached_property
    def function(self) -> tf.types.experimental.ConcreteFunction:
        """Of the tensors of what it uses, one after the other, which XLA compiles."""
        signature = [spec for v in self._loop.inputs for spec in self._specs(v)]
        return traced_function(self._emitted, signature, "joint_loop", {"_XlaMustCompile": True, "_noinline": True})

    def __call__(self, slices: Sequence[Mapping[Value, tf.Tensor]]) -> list[dict[Value, tf.Tensor]]:
        """By core, what the loop makes of what it uses."""
        given = [x for v in self._loop.inputs for x in self._given(v, slices)]
        results = cast("Any", self.function)(*given)
        made: list[dict[Value, tf.Tensor]] = [{} for _ in slices]
        for value, result in zip(self._results, results, strict=True):
            parts = tf.unstack(result)
            positions = core_positions.positions(self._holdings.axes(value), self._plan.mesh_shape)
            for core, position in enumerate(positions):
                made[core][value] = parts[position]
        return made

    def _count(self, value: Value) -> int:
        """Of the cores that hold different slices."""
        return axes_size(self._holdings.axes(value), self._plan.mesh_shape)

    def _specs(self, value: Value) -> list[tf.TensorSpec]:
        """Of what `_given` gives."""
        count, shape = self._count(value), value.slice_shape
        if value not in self._apart:
            return [tf.TensorSpec([count, *shape], value.dtype)]
        return [tf.TensorSpec([count, *shape[1:]], value.dtype)] * shape[0]

    def _given(self, value: Value, slices: Sequence[Mapping[Value, tf.Tensor]]) -> list[tf.Tensor]:
        """[cores, ..], of those that hold different slices; in parts along the slices' first dimension, if used so."""
        own = [slices[core][value] for core in self._holdings.first_cores(self._holdings.axes(value))]
        if value not in self._apart:
            return [tf.stack(own)]
        return [tf.stack(parts) for parts in zip(*map(tf.unstack, own), strict=True)]

    def _emitted(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        program, given = JointProgram(self._plan, SlicesByValue({})), iter(slices)
        for value in self._loop.inputs:
            own = list(itertools.islice(given, len(self._specs(value))))
            program.take({value: own if value in self._apart else own[0]})
        emit_op_by_op(program, self._loop)
        return [program.slices[v] for v in self._results]


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

    def in_order(self, axes: Collection[str]) -> Axes:
        return tuple(name for name in self.mesh_shape.dimension_names if name in axes)

    def first_cores(self, axes: Axes) -> list[int]:
        """By position along the axes, the first of the cores that are there."""
        positions = core_positions.positions(axes, self.mesh_shape)
        return [int(np.argmax(positions == n)) for n in range(axes_size(axes, self.mesh_shape))]

    def coordinates(self, axes: Axes) -> np.ndarray:
        """Of those cores, along all axes of the mesh: int32 [cores, axes of the mesh]."""
        own = (core_positions.coordinates(core, self.mesh_shape).values() for core in self.first_cores(axes))
        return np.array([list(c) for c in own], np.int32).reshape(-1, self.mesh_shape.ndims)


class _Wholes(dict[Value, tf.Tensor]):
    """By value [cores, ..], of those that may hold different ones: made of what they do hold, when asked for."""

    def __init__(self, of: Callable[[Value], tf.Tensor]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, value: Value) -> tf.Tensor:
        self[value] = self._of(value)
        return self[value]


class JointProgram(CoreProgram):
    """What all cores do: `slices` are [cores, ..], of those cores that may hold different ones.

    What is made of slices that are alike is alike: then one core makes it, and `_lean` has it for as many as differ.
    """

    def __init__(self, plan: Plan, variables: VariableSlices) -> None:
        self._holdings = Holdings(plan)
        self._mesh_shape = plan.mesh_shape
        facts = PlanFacts.of(plan, writes_in_place=False)
        core = TracedCore(plan, {})  # that nothing asks
        super().__init__(facts, core, JointCollectives(plan.mesh_shape, ()), variables)
        self.unrolls_loops = True
        self.slices = _Wholes(self._whole)
        self._spreading = Spreading({d.name: d.size for d in plan.mesh_shape})
        self._lean: dict[Value, Spread] = {}
        self._kernels: dict[Compute, Kernel] = {}
        self._kernel_graph = KernelGraph()

    def inside(self, given: Mapping[Value, tf.Tensor]) -> JointProgram:
        inner = super().inside({})
        assert isinstance(inner, JointProgram)
        inner._lean = dict(self._lean)
        inner.slices = _Wholes(inner._whole)
        inner.take(given)
        return inner

    def take(self, results: Mapping[Value, tf.Tensor | list[tf.Tensor]]) -> None:
        for value, result in results.items():
            if isinstance(result, list):
                self.parts[value], result = result, tf.stack(result, axis=1)
            if result.shape.rank == len(value.slice_shape):  # numbers of control flow
                self._hold(value, Spread((), result))
            else:
                self._hold(value, self._apart(self._holdings.axes(value), result))

    def shape_of(self, value: Value) -> tuple[int, ...]:
        return (axes_size(self._holdings.axes(value), self._mesh_shape), *value.slice_shape)

    def slice_of(self, value: Value) -> tf.Tensor:
        return self.slices[value] if value in self._lean else super().slice_of(value)

    def parts_of(self, value: Value) -> list[tf.Tensor]:
        return self.parts[value] if value in self.parts else tf.unstack(self.slices[value], axis=1)

    def stack_of(self, array: tf.TensorArray) -> tf.Tensor:
        stacked = array.stack()
        return tf.transpose(stacked, [1, 0, *range(2, stacked.shape.rank)])

    def part(self, value: Value, index: tf.Tensor, dim: int) -> tf.Tensor:
        whole, axes = self._lean[value], self._holdings.axes(value)
        part = Spread(whole.axes, tf.gather(whole.x, index, axis=len(whole.axes) + dim))
        return reshaped(self._spreading.whole(part, axes), [axes_size(axes, self._mesh_shape), *part.own_shape])

    def scalar(self, value: Value) -> tf.Tensor:
        return self._of_first(self._lean[value], ()).x

    def collective(self, instruction: Collective) -> None:
        step, value = instruction.step, instruction.input
        everywhere = tuple(self._mesh_shape.dimension_names)
        axes = everywhere if step.destinations else self._holdings.in_order({*self._lean[value].axes, *step.axes})
        collectives = JointCollectives(self._mesh_shape, axes)
        result = step.emit(collectives, self._together(value, axes))
        self._hold(instruction.output, self._apart(collectives.axes, result))

    def compute(self, instruction: Compute) -> None:
        if instruction not in self._kernels:  # that of layers, which are emitted one after the other, is one
            self._kernels[instruction] = Kernel(self._plan, instruction, self._kernel_graph)
        kernel, given = self._kernels[instruction], [self._lean[v] for v in instruction.inputs]
        places = {d.name: np.arange(d.size, dtype=np.int32) for d in self._mesh_shape}
        try:
            results = kernel.run(self._spreading, given, places)
        except NotSpreadError:
            results = self._core_by_core(
                instruction, self._holdings.in_order(kernel.asked.union(*(x.axes for x in given)))
            )
        for value, result in zip(instruction.outputs, results, strict=True):
            self._hold(value, result)

    def _core_by_core(self, instruction: Compute, axes: Axes) -> list[Spread]:
        """What cores make that differ along these axes."""
        given, made = [self._together(v, axes) for v in instruction.inputs], []
        for number, position in enumerate(self._holdings.coordinates(axes)):
            core = TracedCore(self._plan, tf.constant(position))
            made.append(on_core(core, instruction, [x[number] for x in given]))
        return [self._apart(axes, tf.stack(each)) for each in zip(*made, strict=True)]

    def _hold(self, value: Value, given: Spread) -> None:
        """From now on the value is this."""
        assert given.own_shape == list(value.slice_shape), value
        own = {*self._holdings.axes(value)}
        self._lean[value] = self._of_first(given, tuple(axis for axis in given.axes if axis in own))
        self.slices.pop(value, None)

    def _whole(self, value: Value) -> tf.Tensor:
        return self._together(value, self._holdings.axes(value))

    def _together(self, value: Value, axes: Axes) -> tf.Tensor:
        """[cores, ..], of those that differ along these axes, among others than those along which the value differs."""
        x = self._spreading.whole(self._lean[value], axes)
        return reshaped(x, [axes_size(axes, self._mesh_shape), *value.slice_shape])

    def _apart(self, axes: Axes, x: tf.Tensor) -> Spread:
        """Of a tensor [cores, ..]."""
        return Spread(axes, reshaped(x, [*self._spreading.sizes(axes), *x.shape.as_list()[1:]]))

    def _of_first(self, given: Spread, kept: Axes) -> Spread:
        """Of slices that are alike along the other axes, one each."""
        if kept == given.axes:
            return given
        return Spread(kept, given.x[tuple(slice(None) if axis in kept else 0 for axis in given.axes)])
