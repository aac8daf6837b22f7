"""Lowering of loops: values carried keep one layout, sums over cores are done at the loop's edge, accumulated ones
stay pending until it is over, and variables assigned inside are carried as well."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.errors import GraphError
from meshtf.graph import Operation, Tensor, sum_dtype, with_nested
from meshtf.layout import TensorLayout
from meshtf.ops.algebra.pointwise import CastKernel
from meshtf.ops.variables.variables import Variable
from meshtf.planning.pending_sums import block_sums, needed_inside
from meshtf.planning.plan import Carried, Check, Condition, Core, Loop, Sliced, Stacked, Value
from meshtf.planning.planner import Planner, StoredVariable

if TYPE_CHECKING:
    from meshtf.control_flow.loop import LoopOperation, LoopSpec
    from meshtf.control_flow.microbatch_cut import MicrobatchCut

_SCALAR = TensorLayout(())


def lower_loop(operation: LoopOperation, planner: Planner) -> None:
    """Adds a `Loop` to the plan."""
    spec, operations = operation.spec, needed_inside(operation.spec.body)
    inner = planner.inside(operation.pending_sums(planner.layouts), operation.captures)
    index = _index(operation, planner, inner)
    sliced = [_sliced(x, part, planner, inner) for x, part in spec.sliced]
    entering = [_entering(initial, t, planner, inner) for initial, t, _ in spec.carried]
    variables = _carried_variables(operations, planner, inner)
    for each in operations:
        inner.lower(each)
    inner.attribute_to(operation)
    leaving = [inner.read(t, planner.layouts[t_in]) for _, t_in, t in spec.carried]
    carried = [_carried(planner, *pair, value) for pair, value in zip(entering, leaving, strict=True)]
    assigned = {name: _carried(planner, *pair, inner.assigned[name]) for name, pair in variables.items()}
    accumulated = [_accumulated(t, planner, inner) for t in spec.accumulated]
    checks = [(_checked(check, planner, inner), check) for check in inner.checks]
    stacked = [
        _stacked(t, dim, _part_of_gradient(operation, y, planner), planner, inner)
        for (t, dim), y in zip(spec.stacked, operation.stacked_outputs, strict=True)
    ]
    trips = planner.value(Shape([]), tf.int32, _SCALAR)
    condition = _condition(operation, index, carried, assigned, planner)
    planner.add(
        Loop(
            operation,
            spec.dim.size,
            None if spec.count is None else planner.read(spec.count),
            condition,
            spec.is_reversed,
            index,
            (*carried, *assigned.values(), *accumulated, *(c for c, _ in checks)),
            tuple(sliced),
            tuple(stacked),
            inner.instructions,
            trips,
            spec.pipeline,
        )
    )
    planner.uses_random |= inner.uses_random
    totals = [
        _converted(c.result, spec.total_dtype(t), planner) for c, t in zip(accumulated, spec.accumulated, strict=True)
    ]
    results = [*(c.result for c in carried), *(s.whole for s in stacked), *totals, trips]
    for output, value in zip(operation.outputs, results, strict=True):
        planner.write(output, value)
    for name, carry in assigned.items():
        planner.assign(name, carry.result)
    for carry, check in checks:
        planner.check_as(check, carry.result)


def _index(operation: LoopOperation, planner: Planner, inner: Planner) -> Value:
    """The number of the iteration, which random bits depend on."""
    spec = operation.spec
    index = inner.value(Shape([]), tf.int32, _SCALAR)
    if spec.microbatched:
        inner.microbatches = ((spec.microbatched, index), *planner.microbatches)
    elif spec.counts_layers:
        inner.layers = _counted(spec, planner.layers, index, inner)
    elif not spec.draws_alike:
        inner.iterations = _counted(spec, planner.iterations, index, inner)
    return index


def _counted(spec: LoopSpec, around: tuple[Value, ...], index: Value, inner: Planner) -> tuple[Value, ...]:
    """The numbers of the iterations around, with this loop's: a segment's are counted on from the one before, and over
    the examples of a micro-batch they are those of the whole batch."""
    dim, scalar = spec.dim, (Shape([]), tf.int32, _SCALAR)
    *outer, number = (*around, index)
    if spec.is_segment:
        *outer, segment = around
        (number,) = inner.compute("index", lambda core, s, i: s * dim.size + i, [segment, index], [scalar])
    for cut, microbatch in inner.microbatches:
        if cut.dimension(Shape([dim])) is not None:
            emit = functools.partial(_place_in_batch, cut, dim)
            (number,) = inner.compute("index", emit, [number, microbatch], [scalar])
    return (*outer, number)


def _place_in_batch(
    cut: MicrobatchCut, dim: Dimension, core: Core, position: tf.Tensor, microbatch: tf.Tensor
) -> tf.Tensor:
    """Where in the whole batch a position of a micro-batch's dimension is."""
    together = cut.neighbours_along(dim)
    return (position // together * cut.count + microbatch) * together + position % together


def _sliced(x: Tensor, part: Tensor, planner: Planner, inner: Planner) -> Sliced:
    (dim,) = (i for i, d in enumerate(x.shape) if not part.shape.has(d.name))
    own = _layout_of_parts(x, dim, planner).axes
    whole = planner.read(x, TensorLayout(tuple(() if i == dim else a for i, a in enumerate(own))))
    axes = tuple(a for i, a in enumerate(own) if i != dim)
    shape = Shape([d for i, d in enumerate(x.shape) if i != dim])
    value = inner.value(shape, x.dtype, TensorLayout(axes))
    inner.give(part, value)
    return Sliced(whole, dim, value)


def _layout_of_parts(x: Tensor, dim: int, planner: Planner) -> TensorLayout:
    """A stack of weights that is kept split enters as it is kept: each iteration gathers its part, and lets it go.

    Not inside a loop over anything but micro-batches, such as tokens to be decoded, which would gather all of it again
    and again.
    """
    kept = _kept_elsewhere(x, planner)
    return planner.layouts[x] if kept is None or kept.axes[dim] or planner.iterations else kept


def _kept_elsewhere(x: Tensor, planner: Planner) -> TensorLayout | None:
    """The layout in which x is kept, if it is a variable that is kept in another than it is computed with."""
    if not isinstance(x.operation, Variable):
        return None
    kept = planner.stored_layout(x.operation)
    return None if kept == planner.layouts[x] else kept


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
    # Many terms of which none changes the sum's few digits would be lost in them.
    term = _converted(inner.left(tensor), sum_dtype(tensor.dtype), inner)
    zeros = constant_like(planner, term, 0)
    entering = inner.value(term.shape, term.dtype, term.layout, term.pending)
    spec = (term.shape, term.dtype, term.layout)
    add, pending = (lambda core, total, x: tf.add(total, x)), term.pending
    (leaving,) = inner.compute("accumulate", add, [entering, term], [spec], pending=pending, kernel=tf.add)
    return _carried(planner, zeros, entering, leaving)


def _converted(value: Value, dtype: tf.DType, planner: Planner) -> Value:
    if value.dtype == dtype:
        return value
    cast, spec = CastKernel(dtype), (value.shape, dtype, value.layout)
    return planner.compute("cast", lambda core, x: cast(x), [value], [spec], pending=value.pending, kernel=cast)[0]


def _checked(check: Check, planner: Planner, inner: Planner) -> Carried:
    flag = check.value
    entering = inner.value(flag.shape, flag.dtype, flag.layout)
    spec = (flag.shape, flag.dtype, flag.layout)
    (leaving,) = inner.compute(
        "every iteration", lambda core, before, now: tf.logical_and(before, now), [entering, flag], [spec]
    )
    return _carried(planner, constant_like(planner, flag, 1), entering, leaving)


def constant_like(planner: Planner, like: Value, number: int) -> Value:
    """A number everywhere, of the shape, dtype and layout of another value."""
    size, dtype = like.slice_shape, like.dtype

    def emit(core: Core) -> tf.Tensor:
        return tf.fill(size, tf.cast(number, dtype))

    spec = (like.shape, like.dtype, like.layout)
    return planner.compute("constant", emit, [], [spec], pending=like.pending)[0]


def _part_of_gradient(operation: LoopOperation, stacked: Tensor, planner: Planner) -> TensorLayout | None:
    """The layout of each iteration's part of a gradient that all of its readers want split as its variable is kept."""
    x = operation.gradient_of(stacked)
    if x is None or _kept_elsewhere(x, planner) is None:
        return None
    made = [reader.outputs[0] for reader in planner.consumers(stacked)]
    wanted = {planner.layouts[y] for y in made}
    if len(wanted) != 1 or any(y.shape != stacked.shape for y in made):
        return None
    first, *axes = wanted.pop().axes
    return None if first else TensorLayout(tuple(axes))


def _stacked(
    tensor: Tensor, dim: Dimension, of_gradient: TensorLayout | None, planner: Planner, inner: Planner
) -> Stacked:
    if of_gradient not in (None, planner.layouts[tensor]):
        part = inner.read(tensor, of_gradient)
    else:
        # One sum over the cores for all iterations; in another layout than the tensor's own it would need more memory.
        part = inner.left(tensor)
        part = part if part.layout == planner.layouts[tensor] else inner.read(tensor)
    layout = TensorLayout(((), *part.layout.axes))
    return Stacked(part, planner.value(Shape([dim, *tensor.shape]), tensor.dtype, layout, part.pending))


def _condition(
    operation: LoopOperation, index: Value, carried: list[Carried], assigned: dict[str, Carried], planner: Planner
) -> Condition | None:
    block = operation.spec.condition
    if block is None:
        return None
    inner = planner.inside(block_sums(block, block.outputs, planner.layouts), block.captures)
    inner.iterations = (*planner.iterations, index)
    values = [c.entering for c in [*carried, *assigned.values()]]
    entering = [inner.value(v.shape, v.dtype, v.layout) for v in values]
    for tensor, value in zip(block.bound, entering, strict=False):
        inner.give(tensor, value)
    for name, value in zip(assigned, entering[len(carried) :], strict=True):
        inner.set_stored(name, value)
    for each in needed_inside(block):
        inner.lower(each)
    inner.attribute_to(operation)
    goes_on = inner.read(block.outputs[0])
    planner.uses_random |= inner.uses_random
    for check in inner.checks:
        raise GraphError(
            f"{check.operation.name} is checked in the condition of {operation.name}, where no step can be ended; "
            f"compute it in the loop's body, and carry it to the condition\n  at {check.operation.site}"
        )
    return Condition(tuple(entering), inner.instructions, goes_on)


def assigned_variables(operations: list[Operation]) -> dict[str, StoredVariable]:
    """Variables that operations, or those nested in them, assign."""
    return {
        o.variable.full_name: o.variable  # type: ignore[attr-defined]
        for o in with_nested(operations)
        if o.has_side_effect and hasattr(o, "variable")
    }
