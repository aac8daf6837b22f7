"""Emission of loops and branches as TensorFlow's functional control flow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from meshtf.lowering.emit._cheap_operations import cheap_operations
from meshtf.lowering.emit._compiled_unrun import CompileToo
from meshtf.planning.local_work.rows_in_place import with_rows
from meshtf.planning.plan import Branch, Carried, Instruction, Loop, Plan, Sliced, Stacked, Value, free_values, walk

if TYPE_CHECKING:
    from meshtf.lowering.emit.core_program import CoreProgram

Stack: TypeAlias = "tf.Tensor | tf.TensorArray"

_MOST_UNROLLED = 1024
"""Instructions. XLA compiles a hundred or two in a second."""
_LONGEST_UNROLLED_ON_PROCESSORS = 8
_MOST_UNROLLED_ON_PROCESSORS = 256
"""Instructions, all iterations together. To trace one takes a quarter of a millisecond."""


def emit_loop(program: CoreProgram, loop: Loop) -> None:
    """Emits a loop into a program; its results become slices of the program."""
    if program.compile_too is not None and loop.compilation is not None and loop.compilation.is_of_each_core:
        _emit_compiled(program, loop, program.compile_too)
    elif _is_unrollable(loop) and (program.unrolls_loops or _is_worth_unrolling(program, loop)):
        _emit_unrolled(program, loop)
    else:
        emit_op_by_op(program, loop)


def _emit_compiled(program: CoreProgram, loop: Loop, compile_too: CompileToo) -> None:
    """As one function that XLA compiles, of what the loop uses from outside: traced once for all cores."""
    apart = entering_in_parts(loop)
    given = [program.parts_of(v) if v in apart else program.slice_of(v) for v in loop.inputs]
    read = [v for v in loop.outputs if v in program.read]

    @cheap_operations()
    def run(*slices: Any) -> list[tf.Tensor]:
        inner = program.compiled(dict(zip(loop.inputs, slices, strict=True)))
        emit_op_by_op(inner, loop)
        return [inner.slices[v] for v in read]

    function: Any = tf.function(run, jit_compile=True, autograph=False).get_concrete_function(*given)
    compile_too(function)
    program.slices.update(zip(read, function(*given), strict=True))


def emit_op_by_op(program: CoreProgram, loop: Loop) -> None:
    """Emits it as TensorFlow's loop, into the function that is being traced."""
    count: Any = loop.length if loop.count is None else program.scalar(loop.count)
    stacks = [_stack_in(program, loop, s) for s in loop.stacked]
    in_parts = _carried_in_parts(loop) if program.unrolls_loops else frozenset()
    carried = [program.parts_of(c.initial) if c in in_parts else program.initial_of(c) for c in loop.carried]
    results = tf.while_loop(
        lambda turn, values, _: _goes_on(program, loop, turn, count, values),
        lambda turn, values, stacks: _iterate(program, loop, turn, count, values, stacks),
        (tf.constant(0), carried, stacks),
        parallel_iterations=1,
    )
    trips, finals, filled = results
    program.take({loop.trips: trips})
    program.take_carried(loop, finals)
    for stacked, stack in zip(loop.stacked, filled, strict=True):
        if isinstance(stack, tf.Tensor):
            program.take({stacked.whole: stack})
        elif stacked.whole in program.only_sliced:
            program.arrays[stacked.whole] = stack
        else:
            program.take({stacked.whole: program.stack_of(stack)})


def new_stack(loop: Loop, stacked: Stacked, *, in_place: bool, element_shape: Sequence[int] | None = None) -> Stack:
    """Room for all parts. One tensor, where parts may be written to it in place: it is never there twice.

    element_shape: of what stands for a part, if not its slice.
    """
    part = stacked.part
    if in_place and loop.is_bounded:
        is_filled = loop.count is None and loop.condition is None
        return tf.raw_ops.Empty(shape=[loop.length, *part.slice_shape], dtype=part.dtype, init=not is_filled)
    shape = part.slice_shape if element_shape is None else element_shape
    return tf.TensorArray(part.dtype, loop.length, element_shape=shape, clear_after_read=False)


def _stack_in(program: CoreProgram, loop: Loop, stacked: Stacked) -> Stack:
    """On processors parts are written in place, but of what loops take apart again."""
    in_place = program.on_processors and stacked.whole not in program.only_sliced
    return new_stack(loop, stacked, in_place=in_place, element_shape=program.shape_of(stacked.part))


def written(stack: Stack, index: tf.Tensor, part: tf.Tensor) -> Stack:
    """The stack with a part in its place. Only the loop has the tensor, which it makes anew in each run."""
    if isinstance(stack, tf.Tensor):
        return with_rows(stack, tf.reshape(index, [1]), part[tf.newaxis])
    return stack.write(index, part)


@cheap_operations()
def _goes_on(program: CoreProgram, loop: Loop, turn: tf.Tensor, count: Any, values: Sequence[tf.Tensor]) -> tf.Tensor:
    if loop.condition is None:
        return turn < count
    inner = program.inside({loop.index: turn})
    inner.take(dict(zip(loop.condition.entering, values, strict=False)))
    inner.emit(loop.condition.instructions)
    return tf.logical_and(turn < count, inner.scalar(loop.condition.goes_on))


@cheap_operations()
def _iterate(
    program: CoreProgram,
    loop: Loop,
    turn: tf.Tensor,
    count: Any,
    values: Sequence[tf.Tensor],
    stacks: Sequence[Stack],
) -> tuple[tf.Tensor, list[tf.Tensor], list[Stack]]:
    index = count - 1 - turn if loop.is_reversed else turn
    given: dict[Value, tf.Tensor] = {loop.index: index}
    for s in loop.sliced:
        given[s.part] = _part(program, s, index)
    inner = program.inside(given)
    inner.is_repeated = True
    inner.take({c.entering: value for c, value in zip(loop.carried, values, strict=True)})
    inner.emit(loop.body)
    filled = [written(own, index, inner.slices[s.part]) for own, s in zip(stacks, loop.stacked, strict=True)]
    leaving = [
        inner.parts[c.leaving] if isinstance(value, list) else inner.slices[c.leaving]
        for c, value in zip(loop.carried, values, strict=True)
    ]
    return turn + 1, leaving, filled


def _is_unrollable(loop: Loop) -> bool:
    """Whether it goes round as often as is known, and is not too large to be compiled so."""
    known = loop.count is None and loop.condition is None and loop.is_bounded and loop.length > 0
    return known and _instructions(loop) <= _MOST_UNROLLED


def _is_worth_unrolling(program: CoreProgram, loop: Loop) -> bool:
    """Whether it is a short one, inside of another that processors go through operation by operation: there each thing
    that an iteration carries takes several operations, and a function with a loop is not run by one thread."""
    is_short = loop.length <= _LONGEST_UNROLLED_ON_PROCESSORS and _instructions(loop) <= _MOST_UNROLLED_ON_PROCESSORS
    return program.on_processors and program.is_repeated and is_short


def _instructions(loop: Loop) -> int:
    return sum(times for _, times in walk(loop.body, loop.length))


def entering_in_parts(loop: Loop) -> frozenset[Value]:
    """Of what a compiled loop uses from outside, that of which it uses the parts along the first dimension.

    It is given them as they are: XLA makes, and compiles, a copy of each part that it cuts out of an array.
    """
    loops = [i for i, _ in walk(loop.body) if isinstance(i, Loop) and _is_unrollable(i)]
    taken = {s.whole for inner in loops for s in inner.sliced if s.dim == 0}
    return frozenset(loop.inputs) & (taken | {c.initial for c in _carried_in_parts(loop)})


def _carried_in_parts(loop: Loop) -> frozenset[Carried]:
    """What a loop carries that an unrolled loop inside puts together, as caches of all layers: in an array that is put
    together anew each time all of it would be copied."""
    made = {s.whole for i in loop.body if isinstance(i, Loop) and _is_unrollable(i) for s in i.stacked}
    return frozenset(c for c in loop.carried if c.leaving in made)


def _emit_unrolled(program: CoreProgram, loop: Loop) -> None:
    """Iteration after iteration, each with parts of its own: XLA copies what is cut out of an array or put there."""
    carried: list[Any] = [program.initial_of(c) for c in loop.carried]
    wholes = {s: program.parts_of(s.whole) for s in loop.sliced if s.dim == 0 and _is_apart(program, s.whole)}
    parts: list[list[Any]] = [[None] * loop.length for _ in loop.stacked]
    iterate = _iteration(program, loop)
    for turn in range(loop.length):
        index = loop.length - 1 - turn if loop.is_reversed else turn
        # Executed operation by operation, iterations that did not wait for one another would hold more at once.
        awaited = carried if program.on_processors and turn else []
        with tf.control_dependencies(awaited):
            own = [wholes[s][index] if s in wholes else _part(program, s, index) for s in loop.sliced]
            own = [tf.identity(part) for part in own] if awaited else own
        carried, made = iterate(index, carried, own)
        for stack, part in zip(parts, made, strict=True):
            stack[index] = part
    program.take({loop.trips: tf.constant(loop.length)})
    program.take_carried(loop, carried)
    program.take({s.whole: own for s, own in zip(loop.stacked, parts, strict=True)})


def _is_apart(program: CoreProgram, whole: Value) -> bool:
    """On processors a part is a view of the whole."""
    return whole in program.parts or not program.on_processors


def _part(program: CoreProgram, sliced: Sliced, index: Any) -> tf.Tensor:
    array = program.arrays.get(sliced.whole)
    return program.part(sliced.whole, index, sliced.dim) if array is None else array.read(index)


def _iteration(program: CoreProgram, loop: Loop) -> Callable[..., tuple[list[tf.Tensor], list[tf.Tensor]]]:
    """From an index, what is carried and parts to what is carried on, and stacked. Where the index does not matter, one
    function for all iterations, which is traced once, and becomes XLA's operations once: inlined, it would as often as
    it is called, at 4 ms for each square root, exponential or einsum, of which TensorFlow makes a module of MLIR."""
    leaving = [c.leaving for c in loop.carried]
    stacked = [s.part for s in loop.stacked]

    @cheap_operations()
    def once(
        given: Mapping[Value, tf.Tensor], carried: Sequence[tf.Tensor], own: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        entering = dict(zip((c.entering for c in loop.carried), carried, strict=True))
        inner = program.inside({**given, **entering, **dict(zip((s.part for s in loop.sliced), own, strict=True))})
        inner.emit(loop.body)
        return [inner.slices[v] for v in leaving], [inner.slices[v] for v in stacked]

    if program.on_processors or loop.index in free_values(loop.body, set(), [*leaving, *stacked]):
        return lambda index, carried, own: once({loop.index: tf.constant(index)}, carried, own)
    body = functools.partial(once, {})
    shared = tf.function(body, autograph=False, experimental_attributes={"_noinline": True})
    return lambda index, carried, own: shared(carried, own)


def emit_branch(program: CoreProgram, branch: Branch) -> None:
    """Emits a branch into a program; its results become slices of the program."""

    @cheap_operations()
    def take(instructions: Sequence[Any], results: Sequence[Value]) -> list[tf.Tensor]:
        inner = program.inside({})
        inner.emit(instructions)
        return [tf.identity(inner.slices[v]) for v in results]

    taken = tf.cond(
        program.scalar(branch.predicate),
        lambda: take(branch.if_true, branch.true_results),
        lambda: take(branch.if_false, branch.false_results),
    )
    program.take(dict(zip(branch.results, taken, strict=True)))


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


def given_outwards(instruction: Instruction) -> list[Value]:
    """What the instructions inside of a loop or a branch make for it, or for what is around it."""
    if isinstance(instruction, Loop):
        goes_on = [] if instruction.condition is None else [instruction.condition.goes_on]
        return [*(c.leaving for c in instruction.carried), *(s.part for s in instruction.stacked), *goes_on]
    if isinstance(instruction, Branch):
        return [*instruction.true_results, *instruction.false_results]
    return []


def read_values(plan: Plan) -> frozenset[Value]:
    """What instructions use, or give to those around them, and what the program gives."""
    read = {*plan.fetches, *(c.value for c in plan.checks)}
    for instruction, _ in walk(plan.instructions):
        read.update(instruction.inputs)
        read.update(given_outwards(instruction))
    return frozenset(read)
