"""Lowering of loops: values carried keep one layout, sums over cores are done at the loop's edge, accumulated ones
stay pending until it is over, and variables assigned inside are carried as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph import Block, Operation, Tensor, with_nested
from meshtf.layout import TensorLayout
from meshtf.lowering.pending_sums import PendingSums
from meshtf.lowering.plan import Branch, Carried, Condition, Core, Loop, Sliced, Stacked, Value
from meshtf.lowering.planner import Planner, StoredVariable

if TYPE_CHECKING:
    from meshtf.control_flow.cond import CondOperation
    from meshtf.control_flow.loop import LoopOperation

_SCALAR = TensorLayout(())


def lower_loop(operation: LoopOperation, planner: Planner) -> None:
    """Adds a `Loop` to the plan."""
    spec = operation.spec
    operations = needed_inside(operation.spec.operations, operation.spec.body.outputs)
    kept = [*(leaving for _, _, leaving in spec.carried), *spec.stacked]
    inner = planner.inside(PendingSums(operations, kept, planner.layouts))
    index = inner.value(Shape([]), tf.int32, _SCALAR)
    if spec.microbatched:
        inner.microbatches = {**planner.microbatches, spec.microbatched: (spec.dim.size, index)}
    else:
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


def _carried_variables(operations: list[Operation], planner: Planner, inner: Planner) -> dict[str, tuple[Value, Value]]:
    pairs = {}
    for name, variable in assigned_variables(operations).items():
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


def lower_branch(operation: CondOperation, planner: Planner) -> None:
    """Adds a `Branch` to the plan. Each side brings its results to the layouts of the operation's outputs."""
    predicate = planner.read(operation.inputs[0])
    variables = assigned_variables([o for block in operation.blocks for o in block.operations])
    before = {name: planner.stored(variable) for name, variable in variables.items()}
    inners = [_side(operation, block, before, planner) for block in operation.blocks]
    results = []
    for inner, block in zip(inners, operation.blocks, strict=True):
        own = [inner.read(t, planner.layouts[y]) for t, y in zip(block.outputs, operation.outputs, strict=True)]
        results.append(own + [inner.assigned.get(name, value) for name, value in before.items()])
    checks = [check for inner in inners for check in inner.checks]
    for inner, own in zip(inners, results, strict=True):
        own.extend(c.value if c in inner.checks else _constant(inner, c.value, 1) for c in checks)
    values = [planner.value(v.shape, v.dtype, v.layout) for v in results[0]]
    bodies = [inner.instructions for inner in inners]
    planner.add(Branch(operation, predicate, *bodies, *map(tuple, results), tuple(values)))  # type: ignore[arg-type]
    for output, value in zip(operation.outputs, values, strict=False):
        planner.write(output, value)
    rest = iter(values[len(operation.outputs) :])
    for name in before:
        planner.assign(name, next(rest))
    for check in checks:
        planner.check_as(check, next(rest))


def _side(operation: CondOperation, block: Block, before: dict[str, Value], planner: Planner) -> Planner:
    operations = needed_inside(block.operations, block.outputs)
    inner = planner.inside(PendingSums(operations, block.outputs, planner.layouts))
    give_captures(operation.captures, planner, inner)
    for name, value in before.items():
        inner.set_stored(name, value)
    for each in operations:
        inner.lower(each)
    inner.attribute_to(operation)
    planner.uses_random |= inner.uses_random
    return inner


def assigned_variables(operations: list[Operation]) -> dict[str, StoredVariable]:
    """Variables that operations, or those nested in them, assign."""
    return {
        o.variable.full_name: o.variable  # type: ignore[attr-defined]
        for o in with_nested(operations)
        if o.has_side_effect and hasattr(o, "variable")
    }
