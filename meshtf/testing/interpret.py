"""Running a program on the plain interpreter of plans: any mesh, no devices, no collectives."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.dimension import ShapeLike, convert_to_shape
from meshtf.graph import Graph, Mesh, Tensor
from meshtf.layout import LayoutLike, LayoutRules, TensorLayout, convert_to_layout_rules
from meshtf.lowering.initial_values import initial_plan
from meshtf.lowering.interpreter import Interpreter, joined
from meshtf.lowering.layouts import LayoutTable
from meshtf.lowering.lowering import make_plan
from meshtf.lowering.plan import Feed, Plan
from meshtf.lowering.planner import StoredVariable
from meshtf.ops.inputs import InputOperation
from meshtf.ops.variables import Variable, count_step


@dataclasses.dataclass(frozen=True)
class Interpretation:
    """What a program gave: its plan, its results as it returned them, and the variables as it left them."""

    plan: Plan
    results: Any
    variables: dict[str, np.ndarray]


def interpret(
    fn: Callable[..., Any],
    inputs: Mapping[str, tuple[ShapeLike, Any]],
    mesh_shape: ShapeLike,
    layout: LayoutLike = "",
    *,
    parameter_layout: LayoutLike | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Interpretation:
    """Builds the graph of `fn` and executes its plan on the interpreter.

    Args:
      fn: as for `mtf.function`.
      inputs: named shape and array of each input.
      mesh_shape: of any size.
      layout: of tensors.
      parameter_layout: of variables; `layout` by default.
      variables: their values before the program; initial values where there is none.
      seed: of the random bits.

    Raises:
      AssertionError: cores that must hold the same block hold different ones.
      LayoutError: the layout does not fit.
    """
    graph = Graph(getattr(fn, "__name__", "program").strip("<>"))
    mesh = Mesh(graph)
    arrays = {name: np.asarray(array) for name, (_, array) in inputs.items()}
    arguments: dict[str, Any] = {
        name: InputOperation(mesh, convert_to_shape(shape), tf.as_dtype(arrays[name].dtype), name).outputs[0]
        for name, (shape, _) in inputs.items()
    }
    if "mesh" in inspect.signature(fn).parameters and "mesh" not in inputs:
        arguments["mesh"] = mesh
    with graph:
        results = fn(**arguments)
    count_step(mesh)
    fetches = [x for x in tf.nest.flatten(results) if isinstance(x, Tensor)]
    done = interpret_graph(
        graph, fetches, arrays, mesh_shape, layout, parameter_layout=parameter_layout, variables=variables, seed=seed
    )
    values = iter(done.results)
    structure = tf.nest.map_structure(lambda x: next(values) if isinstance(x, Tensor) else x, results)
    return dataclasses.replace(done, results=structure)


def interpret_graph(
    graph: Graph,
    fetches: Sequence[Tensor],
    feeds: Mapping[str, Any],
    mesh_shape: ShapeLike,
    layout: LayoutLike = "",
    *,
    parameter_layout: LayoutLike | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
    with_effects: bool = True,
) -> Interpretation:
    """As `interpret`, of a graph that is there already. The results are those of `fetches`, in order."""
    rules = convert_to_layout_rules(layout)
    table = LayoutTable(convert_to_shape(mesh_shape), rules)
    table.resolve(graph.operations)
    storage = _Storage(rules if parameter_layout is None else convert_to_layout_rules(parameter_layout))
    effects = [o for o in graph.operations if o.has_side_effect] if with_effects else []
    plan = make_plan(table, storage, effects, fetches, seed)
    before = _slices_before(plan, graph, table, storage, variables or {}, seed)
    interpreter = Interpreter(plan, before)
    results = interpreter.run({f.name: _fed(f, feeds) for f in plan.feeds})
    after = {
        name: joined(slices, storage.layouts[name], plan)
        for name, slices in interpreter.variables.items()
        if name in storage.layouts
    }
    return Interpretation(plan, results, after)


class _Storage:
    """Variables by their own rules, remembered by name."""

    def __init__(self, rules: LayoutRules) -> None:
        self._rules = rules
        self.layouts: dict[str, TensorLayout] = {}

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        layout = layouts.effective(self._rules.tensor_layout(variable.shape, layouts.mesh_shape))
        return self.layouts.setdefault(variable.full_name, layout)


def _slices_before(
    plan: Plan, graph: Graph, table: LayoutTable, storage: _Storage, given: Mapping[str, Any], seed: int
) -> dict[str, list[np.ndarray]]:
    """Every core's slice of each variable that the plan needs: as given, or its initial value."""
    from meshtf.lowering.interpreter import split

    slices = {n: split(np.asarray(v), storage.layouts[n], plan) for n, v in given.items() if n in storage.layouts}
    found = [graph.variables[n] for n in plan.variable_names if n not in slices]
    missing = [v for v in found if isinstance(v, Variable)]
    if missing:
        initial = initial_plan(missing, storage.layouts, table.mesh_shape, table.rules, seed)
        empty = Interpreter(initial)
        empty.run({f.name: _fed(f, {}) for f in initial.feeds})
        slices.update(empty.variables)
    return slices


def _fed(feed: Feed, feeds: Mapping[str, Any]) -> np.ndarray:
    operation = feed.operation
    assert isinstance(operation, InputOperation)
    value = feeds.get(feed.name, operation.value)
    assert value is not None, f"input {feed.name} is missing"
    return np.asarray(value)
