"""Runs a program on the plain interpreter of plans: for any mesh, without devices or real collectives."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.errors import FeedError, GraphError, MeshtfError
from meshtf.function.checks import check_parameters
from meshtf.function.tensor_spec import TensorSpec
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.layout import LayoutLike, LayoutRules, TensorLayout
from meshtf.lowering.core_slices import joined
from meshtf.lowering.feeding import fed_arrays, inputs_of
from meshtf.lowering.initial_values import initial_plan
from meshtf.lowering.interpreter import Interpreter
from meshtf.lowering.make_plan import effects_with, first_failure, make_plan
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions, checked_mesh
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.variables.program_step import count_step
from meshtf.ops.variables.variable import Variable
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.rules_by_place import RuleSet
from meshtf.planning.plan import Check, Plan
from meshtf.planning.stored_variables import StoredVariable


@dataclasses.dataclass(frozen=True)
class Interpretation:
    """The outcome of a program: its plan, its results in their structure, and the final values of its variables."""

    plan: Plan
    results: Any
    variables: dict[str, np.ndarray]


@says_where
def interpret(
    fn: Callable[..., Any],
    inputs: Mapping[str, tuple[ShapeLike, Any]],
    mesh_shape: ShapeLike,
    layout: LayoutLike = "",
    *,
    seed: int = 0,
    **options: Unpack[MeshOptionKeywords],
) -> Interpretation:
    """Builds the graph of `fn`, and runs its plan on the interpreter with the initial values of its variables.

    Args:
      fn: a function as for `mtf.function`.
      inputs: named shape and array of each input.
      mesh_shape: a mesh of any size.
      layout: the layout of tensors.
      seed: the seed of the random bits.
      options: options of the mesh, see `mtf.MeshOptions`. Only layouts, `axis_parts`, `max_padding` and options for
        processes have an effect.

    Raises:
      AssertionError: if cores that must hold the same block hold different ones.
      FeedError: if an input is missing, or has another shape.
      LayoutError: if the layout does not fit.
    """
    check_inputs(inputs)
    arrays = {name: host_array(array) for name, (_, array) in inputs.items()}
    specs = {n: TensorSpec(shape, tf.as_dtype(arrays[n].dtype)) for n, (shape, _) in inputs.items()}
    graph, results = build(fn, specs)
    fetches = [x for x in tf.nest.flatten(results) if isinstance(x, Tensor)]
    done = interpret_graph(graph, fetches, arrays, mesh_shape, layout, options=MeshOptions(**options), seed=seed)
    values = iter(done.results)
    structure = tf.nest.map_structure(lambda x: next(values) if isinstance(x, Tensor) else x, results)
    return dataclasses.replace(done, results=structure)


def check_inputs(inputs: Mapping[str, Any]) -> None:
    """Raises a FeedError if an input is no pair of a named shape and an array."""
    if not isinstance(inputs, Mapping):
        raise FeedError(f'inputs must be a dict such as {{"x": ("batch:4", x)}}, not {type(inputs).__name__}')
    for name, given in inputs.items():
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise FeedError(f'input "{name}" is given as a named shape and an array, ("batch:4", x), not {given!r}')


@says_where
def plan(
    fn: Callable[..., Any],
    inputs: Mapping[str, TensorSpec],
    mesh_shape: ShapeLike,
    layout: LayoutLike = "",
    **options: Unpack[MeshOptionKeywords],
) -> Plan:
    """Builds only the plan, with the work of every core and every collective: see `meshtf.planning.plan`.

    Args:
      fn: a function as for `mtf.function`.
      inputs: named shape and dtype of each input.
      mesh_shape: a mesh of any size.
      layout: the layout of tensors.
      options: options of the mesh, see `mtf.MeshOptions`. Only layouts, `axis_parts`, `max_padding` and options for
        processes have an effect.

    Raises:
      LayoutError: if the layout does not fit.
    """
    graph, results = build(fn, inputs)
    fetches = [x for x in tf.nest.flatten(results) if isinstance(x, Tensor)]
    table, storage, pass_options = _laid_out(graph, mesh_shape, layout, MeshOptions(**options))
    return make_plan(table, storage, _effects(graph), fetches, options=pass_options)


def build(fn: Callable[..., Any], inputs: Mapping[str, TensorSpec]) -> tuple[Graph, Any]:
    """Builds the graph of `fn` like `mtf.function`. Returns the graph and the results of `fn`."""
    check_parameters(fn, inputs)
    for name, spec in inputs.items():
        if not isinstance(spec, TensorSpec):
            raise GraphError(f'input "{name}" must be an mtf.TensorSpec, not {spec!r}')
    graph = Graph(getattr(fn, "__name__", "program").strip("<>"))
    mesh = Mesh(graph)
    arguments: dict[str, Any] = {n: InputOperation(mesh, s.shape, s.dtype, n).outputs[0] for n, s in inputs.items()}
    if "mesh" in inspect.signature(fn).parameters and "mesh" not in inputs:
        arguments["mesh"] = mesh
    with graph:
        results = fn(**arguments)
    count_step(mesh)
    return graph, results


def interpret_graph(
    graph: Graph,
    fetches: Sequence[Tensor],
    feeds: Mapping[str, Any],
    mesh_shape: ShapeLike,
    layout: LayoutLike = "",
    *,
    options: MeshOptions | None = None,
    seed: int = 0,
    with_effects: bool = True,
) -> Interpretation:
    """Runs the plan of an existing graph, with or without side effects, and returns the values of `fetches`.

    Args:
      graph: the graph to run.
      fetches: tensors of the graph.
      feeds: arrays of its inputs, by name.
      mesh_shape: a mesh of any size.
      layout: the layout of tensors.
      options: options of the mesh. Only layouts, `axis_parts`, `max_padding` and options for processes have an effect.
      seed: the seed of the random bits.
      with_effects: whether it assigns, prints and checks.

    Raises:
      AssertionError: if cores that must hold the same block hold different ones.
      FeedError: if an input is missing or unknown, or has another shape or dtype.
      LayoutError: if the layout does not fit.
    """
    table, storage, pass_options = _laid_out(graph, mesh_shape, layout, options)
    planned = make_plan(table, storage, _effects(graph) if with_effects else [], fetches, seed, pass_options)
    interpreter = Interpreter(planned, _initial_slices(planned, graph, table, storage, seed))

    def failure(check: Check) -> MeshtfError:
        if not check.can_find:
            return check.failure()
        finding = make_plan(table, storage, effects_with(check, graph), (), seed, pass_options, finds_failures=True)
        found, _ = Interpreter(finding, interpreter.variables).outcome(fed_arrays(finding, feeds, graph))
        return first_failure(check, finding, found)

    results = interpreter.run(fed_arrays(planned, feeds, graph), failure)
    after = {
        name: joined(slices, storage.layouts[name], planned)[tuple(map(slice, storage.sizes[name]))]
        for name, slices in interpreter.variables.items()
        if name in storage.layouts
    }
    return Interpretation(planned, results, after)


@says_where
def _laid_out(
    graph: Graph, mesh_shape: ShapeLike, layout: LayoutLike, options: MeshOptions | None
) -> tuple[LayoutTable, _Storage, PassOptions]:
    """Returns the layouts of tensors, the layouts of variables, and the options of the passes.

    The arguments are checked as for a mesh with devices.
    """
    shape, rules, options = checked_mesh(mesh_shape, layout, options, {})
    rule_set = RuleSet.of_variables(rules, options.activation_layout_rules, graph.variables.values())
    axis_parts = options.parts_of_axes(shape)
    table = LayoutTable(axis_parts.taken_apart(shape), rule_set, axis_parts, options.max_padding)
    table.resolve(graph.operations)
    pass_options = PassOptions(process_of_core=options.process_of_core(shape))
    return table, _Storage(options.parameter_layout_rules or rules), pass_options


class _Storage:
    """The layouts of variables under the rules for variables, cached by name."""

    def __init__(self, rules: LayoutRules) -> None:
        self._rules = rules
        self.layouts: dict[str, TensorLayout] = {}
        self.sizes: dict[str, list[int]] = {}

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        layout = layouts.under(self._rules, variable.value)
        self.sizes[variable.full_name] = variable.shape.to_integer_list
        return self.layouts.setdefault(variable.full_name, layout)


def _effects(graph: Graph) -> list[Operation]:
    return [o for o in graph.operations if o.has_side_effect]


def _initial_slices(
    planned: Plan, graph: Graph, table: LayoutTable, storage: _Storage, seed: int
) -> dict[str, list[np.ndarray]]:
    """Returns every core's slice of the initial value of each variable that the plan needs."""
    variables = [v for v in map(graph.variables.get, planned.variable_names) if isinstance(v, Variable)]
    if not variables:
        return {}
    initial = initial_plan(variables, storage.layouts, table.mesh_shape, table.rules, seed, table.axis_parts)
    interpreter = Interpreter(initial)
    interpreter.run({o.name: host_array(o.value) for o in inputs_of(initial)})
    return interpreter.variables
