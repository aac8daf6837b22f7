"""Lowering of loops: values carried keep one layout, sums over cores are done at the loop's edge, accumulated ones
stay pending until it is over, and variables assigned inside are carried as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph import Operation, Tensor, with_nested
from meshtf.layout import TensorLayout
from meshtf.lowering.pending_sums import PendingSums
from meshtf.lowering.plan import Carried, Condition, Core, Loop, Sliced, Stacked, Value
from meshtf.lowering.planner import Planner, StoredVariable

if TYPE_CHECKING:
    from meshtf.ops.control_flow.loop import LoopOperation

_SCALAR = TensorLayout(())


def lower_loop(operation: LoopOperation, planner: Planner) -> None:
    """Adds a `Loop` to the plan."""
    spec = operation.spec
    operations = needed_inside(operation.spec.operations, operation.spec.body.outputs)
    kept = [*(leaving for _, _, leaving in spec.carried), *spec.stacked]
    inner = planner.inside(PendingSums(operations, kept, planner.layouts))
    index = inner.value(Shape([]), tf.int32, _SCALAR)
    inner.iterations = (*planner.iterations, index)
    give_captures(operation.captures, planner, inner)
    sliced = [_sliced(x, part, planner, inner) for x, part in spec.sliced]
    entering = [_entering(initial, t, planner, inner) for initial, t, _ in spec.carried]
    variables = _carried_variables(operations, planner, inner)
    for each in operations:
        inner.lower(each)
    inner.attribute_to(operation)
    leaving = [inner.read(t, planner.layouts[t_in]) for _, t_in, t in spec.carried]
    carried = [_carried(planner, *pair, value) for pair, value in zip(entering, leaving, strict=True)]
    carried += [_carried(planner, *pair, inner.assigned[name]) for name, pair in variables.items()]
    accumulated = [_accumulated(t, planner, inner) for t in spec.accumulated]
    checks = [_checked(flag, planner, inner) for flag in inner.checks]
    stacked = [_stacked(t, operation, planner, inner) for t in spec.stacked]
    trips = planner.value(Shape([]), tf.int32, _SCALAR)
    planner.add(
        Loop(
            operation,
            spec.dim.size,
            None if spec.count is None else planner.read(spec.count),
            _condition(operation, carried, planner),
            spec.is_reversed,
            index,
            (*carried, *accumulated, *(c for c, _ in checks)),
            tuple(sliced),
            tuple(stacked),
            inner.instructions,
            trips,
        )
    )
    planner.uses_random |= inner.uses_random
    results = [*(c.result for c in carried[: len(entering)]), *(s.whole for s in stacked)]
    results += [*(c.result for c in accumulated), trips]
    for output, value in zip(operation.outputs, results, strict=True):
        planner.write(output, value)
    for name, carry in zip(variables, carried[len(entering) :], strict=True):
        planner.assign(name, carry.result)
    for carry, check in checks:
        planner.check_as(check, carry.result)


def needed_inside(operations: tuple[Operation, ...], outputs: tuple[Tensor, ...]) -> list[Operation]:
    """Of a block's operations, those that its outputs or side effects need, in order."""
    wanted = {t.operation for t in outputs} | {o for o in operations if o.has_side_effect}
    for operation in reversed(operations):
        if operation in wanted:
            wanted.update(x.operation for x in operation.inputs)
            wanted.update(operation.dependencies)
    return [o for o in operations if o in wanted]


def give_captures(captures: list[Tensor], planner: Planner, inner: Planner) -> None:
    """Hands a block what it uses from outside, with no sum pending: done once, and not in every iteration."""
    for tensor in captures:
        inner.give(tensor, planner.read(tensor))


def _sliced(x: Tensor, part: Tensor, planner: Planner, inner: Planner) -> Sliced:
    (dim,) = (i for i, d in enumerate(x.shape) if not part.shape.has(d.name))
    own = planner.layouts[x].axes
    whole = planner.read(x, TensorLayout(tuple(() if i == dim else a for i, a in enumerate(own))))
    axes = tuple(a for i, a in enumerate(own) if i != dim)
    shape = Shape([d for i, d in enumerate(x.shape) if i != dim])
    value = inner.value(shape, x.dtype, TensorLayout(axes))
    inner.give(part, value)
    return Sliced(whole, dim, value)


def _entering(initial: Tensor, inside: Tensor, planner: Planner, inner: Planner) -> tuple[Value, Value]:
    layout = planner.layouts[inside]
    value = inner.value(inside.shape, inside.dtype, layout)
    inner.give(inside, value)
    return planner.read(initial, layout), value


def _carried(planner: Planner, initial: Value, entering: Value, leaving: Value) -> Carried:
    result = planner.value(initial.shape, initial.dtype, entering.layout, entering.pending)
    return Carried(initial, entering, leaving, result)


def _carried_variables(
    operations: list[Operation], planner: Planner, inner: Planner
) -> dict[str, tuple[Value, Value]]:
    assigned: dict[str, StoredVariable] = {
        o.variable.full_name: o.variable  # type: ignore[attr-defined]
        for o in with_nested(operations)
        if o.has_side_effect and hasattr(o, "variable")
    }
    pairs = {}
    for name, variable in assigned.items():
        initial = planner.stored(variable)
        value = inner.value(initial.shape, initial.dtype, initial.layout)
        inner.set_stored(name, value)
        pairs[name] = (initial, value)
    return pairs


def _accumulated(tensor: Tensor, planner: Planner, inner: Planner) -> Carried:
    term = inner.held(tensor)
    if term.layout != planner.layouts[tensor]:
        term = inner.read(tensor)
    zeros = _constant(planner, term, 0)
    entering = inner.value(term.shape, term.dtype, term.layout, term.pending)
    spec = (term.shape, term.dtype, term.layout)
    (leaving,) = inner.compute(
        "accumulate", lambda core, total, x: tf.add(total, x), [entering, term], [spec], pending=term.pending
    )
    return _carried(planner, zeros, entering, leaving)


def _checked(check: object, planner: Planner, inner: Planner) -> tuple[Carried, object]:
    flag: Value = check.value  # type: ignore[attr-defined]
    entering = inner.value(flag.shape, flag.dtype, flag.layout)
    spec = (flag.shape, flag.dtype, flag.layout)
    (leaving,) = inner.compute(
        "every iteration", lambda core, before, now: tf.logical_and(before, now), [entering, flag], [spec]
    )
    return _carried(planner, _constant(planner, flag, 1), entering, leaving), check


def _constant(planner: Planner, like: Value, number: int) -> Value:
    size, dtype = like.slice_shape, like.dtype

    def emit(core: Core) -> tf.Tensor:
        return tf.fill(size, tf.cast(number, dtype))

    spec = (like.shape, like.dtype, like.layout)
    return planner.compute("constant", emit, [], [spec], pending=like.pending)[0]


def _stacked(tensor: Tensor, operation: LoopOperation, planner: Planner, inner: Planner) -> Stacked:
    part = inner.read(tensor)
    layout = TensorLayout(((), *part.layout.axes))
    whole = planner.value(Shape([operation.spec.dim, *tensor.shape]), tensor.dtype, layout)
    return Stacked(part, whole)


def _condition(operation: LoopOperation, carried: list[Carried], planner: Planner) -> Condition | None:
    block = operation.spec.condition
    if block is None:
        return None
    operations = needed_inside(block.operations, block.outputs)
    inner = planner.inside(PendingSums(operations, block.outputs, planner.layouts))
    give_captures(block.captures, planner, inner)
    entering = []
    for tensor, carry in zip(block.bound, carried, strict=False):
        value = inner.value(tensor.shape, tensor.dtype, carry.entering.layout)
        inner.give(tensor, value)
        entering.append(value)
    for each in operations:
        inner.lower(each)
    inner.attribute_to(operation)
    goes_on = inner.read(block.outputs[0])
    return Condition(tuple(entering), inner.instructions, goes_on)
