"""Initial values of variables: a program of their own, so that each core computes its slices and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.dimension import Shape
from meshtf.graph import Graph, Mesh
from meshtf.layout import LayoutRules, TensorLayout
from meshtf.lowering.emit.programs import program_for
from meshtf.lowering.feeding import inputs_of
from meshtf.lowering.variable_store import handles
from meshtf.ops.inputs.inputs import zeros
from meshtf.ops.variables.variables import Assign, Variable
from meshtf.planning.layout_table import LayoutTable
from meshtf.planning.plan import Plan
from meshtf.planning.planner import StoredVariable

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering


def initialize(variables: Sequence[Variable], layouts: Mapping[str, TensorLayout], lowering: Lowering) -> None:
    """Makes the slices of `variables` in these layouts and computes their initial values on the cores."""
    store, mesh_impl = lowering.variables, lowering.device_mesh
    try:
        for variable in variables:
            store.create(variable, layouts[variable.full_name], mesh_impl)
        computed = [v for v in variables if v.spec.initializer is not zeros]  # slices are zero when they are made
        if not computed:
            return
        rules, axis_parts = mesh_impl.layout_rules, mesh_impl.axis_parts
        plan = initial_plan(computed, layouts, mesh_impl.shape, rules, lowering.seed, axis_parts)
        program = program_for(plan, mesh_impl, handles(store, plan.variable_names), runs_once=True)
        with tf.init_scope():
            program([tf.convert_to_tensor(i.value) for i in inputs_of(plan)])
    except BaseException:
        # A variable without its initial value must not be taken for one that has it.
        for variable in variables:
            if variable.full_name in store:
                del store[variable.full_name]
        raise


def initial_plan(
    variables: Sequence[Variable],
    layouts: Mapping[str, TensorLayout],
    mesh_shape: Shape,
    rules: LayoutRules,
    seed: int,
    axis_parts: AxisParts = WHOLE_AXES,
) -> Plan:
    """The plan that assigns the initial values, to slices in `layouts`; `rules` are those of what is computed on the
    way. The random bits of each are keyed by the variable's name."""
    from meshtf.lowering.lowering import make_plan

    graph = Graph("initial_values", is_initial=True)
    mesh = Mesh(graph)
    assignments = []
    with graph:
        for variable in variables:
            twin = Variable(mesh, variable.spec)
            with graph.variable_scopes_of(variable.full_name, variable.spec.layer_scopes):
                assignments.append(Assign(twin, variable.initial_value(mesh)))
    table = LayoutTable(mesh_shape, rules, axis_parts)
    table.resolve(graph.operations)
    return make_plan(table, _Fixed(layouts), assignments, (), seed)


class _Fixed:
    def __init__(self, layouts: Mapping[str, TensorLayout]) -> None:
        self._layouts = layouts

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        return self._layouts[variable.full_name]
