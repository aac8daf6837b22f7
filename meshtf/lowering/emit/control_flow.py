"""Emits loops and branches as TensorFlow's: the values that a loop carries, slices and stacks, for every kind of
emission.

A loop of a plan over 3 iterations that carries `x`, takes row `i` of `w` and stacks `y` becomes

    turn, [x], [stack] = tf.while_loop(turn < 3, body, (0, [x], [TensorArray of 3 rows]))

    def body(turn, [x], [stack]):
        give x, and row `turn` of w; emit the loop's instructions; write y into row `turn` of the stack

The values of one iteration live in a `Scope`. A core that is traced by itself is a scope (`CoreProgram`), in which a
value has one tensor. Cores that are traced side by side are another (`AllCores`), in which a value has one tensor for
each group of cores that hold equal slices. A compiled program may also hold a value as a list of its parts. So every
value here is a list of tensors, whatever the list stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import tensorflow as tf

from meshtf.planning.plan import Branch, Carried, Compute, Instruction, Loop, Sliced, Stacked, Value

Tensors: TypeAlias = list[tf.Tensor]


class Scope(Protocol):
    """The tensors of values, in a function, a loop or a branch that is being traced."""

    def inside(self) -> Scope:
        """A scope for the inside of a loop or a branch. It sees the values of this scope. Values made in it stay in
        it."""
        ...

    def number(self, value: Value) -> tf.Tensor:
        """The tensor of a scalar value that is equal on all cores."""
        ...

    def give_number(self, value: Value, number: tf.Tensor) -> None:
        """Gives every core the same scalar."""
        ...

    def count(self, like: Value) -> int:
        """The number of groups of cores. The cores of a group hold equal slices of `like`."""
        ...

    def tensors(self, value: Value, like: Value) -> Tensors:
        """The tensors of a value, one for each group of cores that hold equal slices of `like`."""
        ...

    def give(self, value: Value, tensors: Sequence[tf.Tensor], like: Value) -> None:
        """Sets the tensors of a value, one for each group of cores that hold equal slices of `like`."""
        ...

    def rows(self, sliced: Sliced, index: tf.Tensor) -> Tensors:
        """The parts of a value that an iteration reads, one for each group of cores that hold equal parts."""
        ...

    def give_stacks(self, stacked: Stacked, stacks: Sequence[tf.TensorArray]) -> None:
        """Sets a value to the stacks that a loop has filled, one for each group of cores that hold equal parts."""
        ...

    def emit(self, instructions: Sequence[Instruction], results: Sequence[Value]) -> None:
        """Emits instructions in order. `results` are those of their outputs that are read afterwards."""
        ...


class ScopeOfParts(Scope, Protocol):
    """A scope that also holds values in parts along their first dimension, for programs that XLA compiles."""

    def parts(self, value: Value) -> Tensors:
        """The parts of a value."""
        ...

    def give_parts(self, value: Value, parts: Sequence[tf.Tensor]) -> None:
        """Sets a value that consists of these parts."""
        ...


Beginning: TypeAlias = Callable[[Carried, Tensors], Tensors]
"""Changes the tensors of a carried value before the first iteration."""


def emit_loop(
    scope: Scope,
    loop: Loop,
    begin: Beginning = lambda carried, tensors: tensors,
    *,
    iterations_per_check: int = 1,
) -> None:
    """Emits a loop as `tf.while_loop`.

    Args:
      scope: holds the loop's inputs, and receives its results.
      loop: the plan's loop.
      begin: is applied to all carried values before the first iteration.
      iterations_per_check: the number of iterations between two evaluations of the loop's condition. With more than
        one, nothing may be stacked and `loop.trips` may be too large.
    """
    count: Any = loop.length if loop.count is None else scope.number(loop.count)
    initial = [begin(c, scope.tensors(c.initial, c.entering)) for c in loop.carried]
    stacks = [[_empty_stack(loop, s) for _ in range(scope.count(s.part))] for s in loop.stacked]

    # What no iteration changes is not passed on: XLA does not compile three loops in a row that pass on one constant,
    # https://github.com/tensorflow/tensorflow/issues/122886.
    unchanged = _unchanged(loop)

    def changing(values: list[Tensors]) -> list[Tensors]:
        return [[] if is_same else own for is_same, own in zip(unchanged, values, strict=True)]

    def every(values: list[Tensors]) -> list[Tensors]:
        return [own or before for own, before in zip(values, initial, strict=True)]

    def goes_on(turn: tf.Tensor, values: list[Tensors], _: Any) -> tf.Tensor:
        return _goes_on(scope, loop, turn, count, every(values))

    def iterate(turn: tf.Tensor, values: list[Tensors], stacks: list[list[tf.TensorArray]]) -> Any:
        index = count - 1 - turn if loop.is_reversed else turn
        rows = [scope.rows(s, index) for s in loop.sliced]
        leaving, made = _iterate(scope, loop, index, every(values), rows)
        filled = [
            [stack.write(index, part) for stack, part in zip(own, parts, strict=True)]
            for own, parts in zip(stacks, made, strict=True)
        ]
        return turn + 1, changing(leaving), filled

    body = iterate if iterations_per_check == 1 else _repeated(iterate, iterations_per_check)
    begun = (tf.constant(0), changing(initial), stacks)
    # XLA compiles no loop that reads parts of an empty stack.
    trips, finals, filled = tf.while_loop(goes_on, body, begun, parallel_iterations=1) if loop.length else begun
    scope.give_number(loop.trips, trips)
    _give_carried(scope, loop, every(finals))
    for s, own in zip(loop.stacked, filled, strict=True):
        scope.give_stacks(s, own)


def _unchanged(loop: Loop) -> list[bool]:
    """Whether each carried value stays the same in all iterations. Loops and copies in the body may pass it on, too."""
    inner = [i for i in loop.body if isinstance(i, Loop)]
    same = {c.result: c.initial for i in inner for c, is_same in zip(i.carried, _unchanged(i), strict=True) if is_same}
    same |= {i.outputs[0]: i.inputs[0] for i in loop.body if _is_copy(i)}

    def first(value: Value) -> Value:
        return first(same[value]) if value in same else value

    return [first(c.leaving) is c.entering for c in loop.carried]


def _is_copy(instruction: Instruction) -> bool:
    """Whether it passes on a value as it is, such as `mtf.stop_gradient`."""
    if not isinstance(instruction, Compute) or getattr(instruction.operation, "kernel", None) is not tf.identity:
        return False
    return instruction.inputs[0].layout == instruction.outputs[0].layout


def _repeated(iterate: Callable[..., Any], times: int) -> Callable[..., Any]:
    """Runs several iterations as one, in a loop whose length a compiler sees."""

    def several(*values: Any) -> Any:
        return tf.while_loop(
            lambda done, *_: done < times,
            lambda done, *now: (done + 1, *iterate(*now)),
            (tf.constant(0), *values),
            parallel_iterations=1,
        )[1:]

    return several


Entering: TypeAlias = Callable[[list[Tensors], list[Tensors]], tuple[list[Tensors], list[Tensors]]]
"""Changes the values carried and the parts, when they enter an iteration."""


def emit_unrolled(scope: ScopeOfParts, loop: Loop, enter: Entering = lambda carried, rows: (carried, rows)) -> None:
    """Emits the iterations of a loop one after the other, each with its own parts, for a compiler.

    In a loop, XLA would copy each slice that is cut out of an array or written into one. The number of iterations must
    be known. The loop may slice any dimension of its inputs.

    Args:
      scope: holds the loop's inputs, and receives its results.
      loop: the plan's loop.
      enter: is applied to all values that enter an iteration.
    """
    carried = [scope.tensors(c.initial, c.entering) for c in loop.carried]
    wholes = [scope.parts(s.whole) if s.dim == 0 else None for s in loop.sliced]
    stacked: list[list[tf.Tensor]] = [[] for _ in loop.stacked]
    order = reversed(range(loop.length)) if loop.is_reversed else range(loop.length)
    for index in order:
        turn = tf.constant(index)
        rows = [
            scope.rows(s, turn) if parts is None else [parts[index]]
            for s, parts in zip(loop.sliced, wholes, strict=True)
        ]
        with tf.name_scope(f"turn_{index}"):
            carried, made = _iterate(scope, loop, turn, *enter(carried, rows))
        for parts, (part,) in zip(stacked, made, strict=True):
            parts.append(part)
    scope.give_number(loop.trips, tf.constant(loop.length))
    _give_carried(scope, loop, carried)
    for s, parts in zip(loop.stacked, stacked, strict=True):
        scope.give_parts(s.whole, parts[::-1] if loop.is_reversed else parts)


def emit_branch(scope: Scope, branch: Branch) -> None:
    """Emits a branch as `tf.cond`."""

    def take(instructions: Sequence[Instruction], results: Sequence[Value]) -> list[Tensors]:
        inner = scope.inside()
        inner.emit(instructions, results)
        made = zip(results, branch.results, strict=True)
        return [[tf.identity(x) for x in inner.tensors(value, like=result)] for value, result in made]

    taken = tf.cond(
        scope.number(branch.predicate),
        lambda: take(branch.if_true, branch.true_results),
        lambda: take(branch.if_false, branch.false_results),
    )
    for result, tensors in zip(branch.results, taken, strict=True):
        scope.give(result, tensors, result)


def _goes_on(scope: Scope, loop: Loop, turn: tf.Tensor, count: Any, values: Sequence[Tensors]) -> tf.Tensor:
    if loop.condition is None:
        return turn < count
    inner = scope.inside()
    inner.give_number(loop.index, turn)
    for c, entering, tensors in zip(loop.carried, loop.condition.entering, values, strict=False):
        inner.give(entering, tensors, c.entering)
    inner.emit(loop.condition.instructions, [loop.condition.goes_on])
    return tf.logical_and(turn < count, inner.number(loop.condition.goes_on))


def _iterate(
    scope: Scope,
    loop: Loop,
    index: tf.Tensor,
    values: Sequence[Tensors],
    rows: Sequence[Tensors],
) -> tuple[list[Tensors], list[Tensors]]:
    """Emits one iteration. Returns the values that it carries on, and its part of each stack."""
    inner = scope.inside()
    inner.give_number(loop.index, index)
    for s, tensors in zip(loop.sliced, rows, strict=True):
        inner.give(s.part, tensors, s.part)
    for c, tensors in zip(loop.carried, values, strict=True):
        inner.give(c.entering, tensors, c.entering)
    inner.emit(loop.body, [*(c.leaving for c in loop.carried), *(s.part for s in loop.stacked)])
    leaving = [inner.tensors(c.leaving, c.entering) for c in loop.carried]
    return leaving, [inner.tensors(s.part, s.part) for s in loop.stacked]


def _give_carried(scope: Scope, loop: Loop, finals: Sequence[Tensors]) -> None:
    for c, final in zip(loop.carried, finals, strict=True):
        scope.give(c.result, final, c.entering)


def _empty_stack(loop: Loop, stacked: Stacked) -> tf.TensorArray:
    part = stacked.part
    return tf.TensorArray(part.dtype, loop.length, element_shape=part.slice_shape, clear_after_read=False)
