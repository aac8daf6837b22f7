"""`x.eval()`: the value of one tensor while the graph is being built, on one core, by the interpreter of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import GraphError, UsageError
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.blocks import PROGRAM, with_nested
from meshtf.graph.graph import Graph
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.tensor_views import register_views
from meshtf.layout import Axes, LayoutRules, TensorLayout
from meshtf.lowering.feeding import fed_arrays, inputs_of
from meshtf.lowering.initial_values import initial_plan
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.make_plan import assignments_before, make_plan, needed
from meshtf.lowering.report.text_table import bytes_text
from meshtf.number_checks import is_integer, is_seed
from meshtf.ops.rearranging.with_layout import WithLayoutOperation
from meshtf.ops.variables.variable import Variable
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Plan
from meshtf.planning.stored_variables import StoredVariable

_IN_BLOCK = """\
{x} is inside {what}: it has another value in each run there, and no value outside; evaluate the inputs of {what} \
before it, let the function return the tensor, or print it there with mtf.print_tensor"""

_TOO_LARGE = """\
{x} needs {total} of tensors and variables, and the limit is {limit}; the largest is {largest}, {bytes}. Evaluate it \
with smaller sizes, or allow more: x.eval(limit={needed})"""


@tf.autograph.experimental.do_not_convert
@garbage_collection_paused()
@says_where
def evaluate(
    x: Tensor, feeds: Mapping[str, Any], variables: Mapping[str, Any], seed: int | None, limit: int
) -> np.ndarray:
    """The value of `x`: see `mtf.Tensor.eval`."""
    graph = x.graph
    _check_in_program(x)
    seed = graph.seed if seed is None else seed
    if not is_seed(seed):
        raise UsageError(f"seed must be a whole number of 64 bits, and is {seed!r}")
    if not is_integer(limit, 0):
        raise UsageError(f"limit must be a whole number of bytes, and is {limit!r}")
    with graph.outermost():
        before = assignments_before([x.operation])
        operations = needed([x.operation, *before])
        _check_size(x, operations, limit)
        with tf.init_scope():  # values exist here even while a tf.function is being traced
            return _value(x, before, operations, feeds, variables, seed)


def _check_in_program(x: Tensor) -> None:
    place = x.operation.place
    if place is not PROGRAM:
        raise GraphError(_IN_BLOCK.format(x=x, what=place.what))


def _check_size(x: Tensor, operations: Sequence[Operation], limit: int) -> None:
    """Raises UsageError if all tensors together are larger than the limit, because the interpreter keeps them all."""
    sizes = {t: t.size * t.dtype.size for o in with_nested(operations) for t in o.outputs}
    total = sum(sizes.values())
    if total <= limit:
        return
    largest = max(sizes, key=sizes.__getitem__)
    total_text, limit_text, bytes_ = (bytes_text(n).strip() for n in (total, limit, sizes[largest]))
    raise UsageError(
        _TOO_LARGE.format(
            x=x, total=total_text, limit=limit_text, largest=largest, bytes=bytes_, needed=_rounded_up(total)
        )
    )


def _rounded_up(n: int) -> str:
    return f"{-(-n // 2**30)} << 30"


def _value(
    x: Tensor,
    before: Sequence[Operation],
    operations: Sequence[Operation],
    arrays: Mapping[str, Any],
    variables: Mapping[str, Any],
    seed: int,
) -> np.ndarray:
    table = LayoutTable(Shape([(axis, 1) for axis in _axes(operations)]), LayoutRules({}))
    table.resolve(operations)
    plan = make_plan(table, _OneCore(), before, [x], seed)
    fed = fed_arrays(plan, arrays, x.graph)
    interpreter = Interpreter(plan, _variables(plan, x.graph, variables, table, seed))
    (value,) = interpreter.run(fed)
    return value


def _axes(operations: Iterable[Operation]) -> list[str]:
    """The mesh axes that overrides name. On one core, each has size 1."""
    overrides = (o for o in with_nested(operations) if isinstance(o, WithLayoutOperation))
    return sorted({axis for o in overrides for axis in o.axes})


class _OneCore:
    """Keeps each variable whole."""

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        return _whole(variable)


def _whole(variable: StoredVariable) -> TensorLayout:
    nothing: Axes = ()
    return TensorLayout((nothing,) * variable.shape.ndims)


def _variables(
    plan: Plan, graph: Graph, given: Mapping[str, Any], table: LayoutTable, seed: int
) -> dict[str, list[np.ndarray]]:
    """The value of each variable that the plan needs: the given one, else the initial one."""
    own = [v for v in map(graph.variables.get, plan.variable_names) if isinstance(v, Variable)]
    values = {v.full_name: [_padded(v, np.asarray(given[v.full_name]))] for v in own if v.full_name in given}
    others = [v for v in own if v.full_name not in values]
    if others:
        layouts = {v.full_name: _whole(v) for v in others}
        initial = Interpreter(initial_plan(others, layouts, table.mesh_shape, table.rules, seed))
        initial.run({o.name: np.asarray(o.value) for o in inputs_of(initial.plan)})
        values.update(initial.variables)
    return values


def _padded(variable: Variable, array: np.ndarray) -> np.ndarray:
    sizes = variable.unpadded_shape.to_integer_list
    if list(array.shape) != sizes:
        raise GraphError(
            f'variable "{variable.full_name}" is [{variable.unpadded_shape}]; the value given for it has shape '
            f"{list(array.shape)}"
        )
    missing = [(0, whole - own) for whole, own in zip(variable.shape.to_integer_list, sizes, strict=True)]
    own = array.astype(variable.slice_dtype.as_numpy_dtype)
    return np.pad(own, missing) if missing else own  # np.pad refuses a scalar


def register_evaluation() -> None:
    """Registers `evaluate` as the function behind `x.eval()`."""
    register_views(evaluate=evaluate)
