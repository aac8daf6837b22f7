"""Emission of loops and branches as TensorFlow's functional control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from meshtf.planning.plan import Branch, Loop, Plan, Stacked, Value, walk

if TYPE_CHECKING:
    from meshtf.lowering.emit.emission import CoreProgram

_Stack: TypeAlias = "tf.Tensor | tf.TensorArray"


def emit_loop(program: CoreProgram, loop: Loop) -> None:
    """Emits a loop into a program; its results become slices of the program."""
    if program.compiles_loops and loop.compilation is not None and not loop.compilation.refusal:
        _emit_compiled(program, loop)
    else:
        _emit_op_by_op(program, loop)


def _emit_compiled(program: CoreProgram, loop: Loop) -> None:
    """As one function that XLA compiles, of what the loop uses from outside: traced once for all cores."""
    given = loop.inputs

    def run(*slices: tf.Tensor) -> list[tf.Tensor]:
        inner = program.compiled(dict(zip(given, slices, strict=True)))
        _emit_op_by_op(inner, loop)
        return [inner.slices[v] for v in loop.outputs]

    arguments = [program.slices[v] if v in program.slices else program.arrays[v].stack() for v in given]
    results = tf.function(run, jit_compile=True, autograph=False)(*arguments)
    program.slices.update(zip(loop.outputs, results, strict=True))


def _emit_op_by_op(program: CoreProgram, loop: Loop) -> None:
    slices = program.slices
    count: Any = loop.length if loop.count is None else slices[loop.count]
    stacks = [_new_stack(program, loop, s) for s in loop.stacked]
    carried = [slices[c.initial] for c in loop.carried]
    results = tf.while_loop(
        lambda turn, values, _: _goes_on(program, loop, turn, count, values),
        lambda turn, values, stacks: _iterate(program, loop, turn, count, values, stacks),
        (tf.constant(0), carried, stacks),
        parallel_iterations=1,
    )
    trips, finals, filled = results
    slices[loop.trips] = trips
    slices.update(zip((c.result for c in loop.carried), finals, strict=True))
    for stacked, stack in zip(loop.stacked, filled, strict=True):
        if isinstance(stack, tf.Tensor):
            slices[stacked.whole] = stack
        elif stacked.whole in program.only_sliced:
            program.arrays[stacked.whole] = stack
        else:
            slices[stacked.whole] = stack.stack()


def _new_stack(program: CoreProgram, loop: Loop, stacked: Stacked) -> _Stack:
    """Room for all parts: on processors, where parts are written in place, one tensor; it is never there twice."""
    part = stacked.part
    if program.on_processors and loop.is_bounded and stacked.whole not in program.only_sliced:
        is_filled = loop.count is None and loop.condition is None
        return tf.raw_ops.Empty(shape=[loop.length, *part.slice_shape], dtype=part.dtype, init=not is_filled)
    return tf.TensorArray(part.dtype, loop.length, element_shape=part.slice_shape, clear_after_read=False)


def _written(stack: _Stack, index: tf.Tensor, part: tf.Tensor) -> _Stack:
    """The stack with a part in its place. Only the loop has the tensor, which it makes anew in each run."""
    if isinstance(stack, tf.Tensor):
        return tf.raw_ops.InplaceUpdate(x=stack, i=[index], v=part[tf.newaxis])
    return stack.write(index, part)


def _goes_on(program: CoreProgram, loop: Loop, turn: tf.Tensor, count: Any, values: Sequence[tf.Tensor]) -> tf.Tensor:
    if loop.condition is None:
        return turn < count
    inner = program.inside({loop.index: turn, **dict(zip(loop.condition.entering, values, strict=False))})
    inner.emit(loop.condition.instructions)
    return tf.logical_and(turn < count, inner.slices[loop.condition.goes_on])


def _iterate(
    program: CoreProgram,
    loop: Loop,
    turn: tf.Tensor,
    count: Any,
    values: Sequence[tf.Tensor],
    stacks: Sequence[_Stack],
) -> tuple[tf.Tensor, list[tf.Tensor], list[_Stack]]:
    index = count - 1 - turn if loop.is_reversed else turn
    given: dict[Value, tf.Tensor] = {loop.index: index}
    given.update(zip((c.entering for c in loop.carried), values, strict=True))
    for s in loop.sliced:
        array = program.arrays.get(s.whole)
        given[s.part] = tf.gather(program.slices[s.whole], index, axis=s.dim) if array is None else array.read(index)
    inner = program.inside(given)
    inner.emit(loop.body)
    written = [_written(own, index, inner.slices[s.part]) for own, s in zip(stacks, loop.stacked, strict=True)]
    return turn + 1, [inner.slices[c.leaving] for c in loop.carried], written


def emit_branch(program: CoreProgram, branch: Branch) -> None:
    """Emits a branch into a program; its results become slices of the program."""

    def take(instructions: Sequence[Any], results: Sequence[Value]) -> list[tf.Tensor]:
        inner = program.inside({})
        inner.emit(instructions)
        return [tf.identity(inner.slices[v]) for v in results]

    taken = tf.cond(
        program.slices[branch.predicate],
        lambda: take(branch.if_true, branch.true_results),
        lambda: take(branch.if_false, branch.false_results),
    )
    program.slices.update(zip(branch.results, taken, strict=True))


def only_sliced(plan: Plan) -> frozenset[Value]:
    """What loops stack, and nothing uses but loops that take its parts."""
    stacked: set[Value] = set()
    used = {*plan.fetches, *(c.value for c in plan.checks)}
    for instruction, _ in walk(plan.instructions):
        if isinstance(instruction, Loop):
            stacked.update(s.whole for s in instruction.stacked)
            used.update(s.whole for s in instruction.sliced if s.dim != 0)
            used.update(v for c in instruction.carried for v in (c.initial, c.leaving))
            used.update(s.part for s in instruction.stacked)
        elif isinstance(instruction, Branch):
            used.update([*instruction.true_results, *instruction.false_results])
        else:
            used.update(instruction.inputs)
    return frozenset(stacked - used)
