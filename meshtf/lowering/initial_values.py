"""Computes the initial values of variables with a separate program, so that each core computes only its own slices. If
cores on one device have the same slices, only the first one computes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.control_flow.loops.loop_spec import Counted, Numbering
from meshtf.control_flow.loops.scan_body import ScanBody
from meshtf.control_flow.recompute_policy import KEEP_EVERYTHING
from meshtf.dimension import Dimension, Shape
from meshtf.errors import MeshtfError, ShapeError
from meshtf.graph.graph import Graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import LayoutRules, TensorLayout
from meshtf.lowering.feeding import inputs_of
from meshtf.lowering.make_plan import make_plan
from meshtf.lowering.variable_store import handles
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import less
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import ones, zeros
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.random.random_initializers import RandomNormal
from meshtf.ops.rearranging.reshape import replace_dimensions
from meshtf.ops.variables.get_variable import DEFAULT_STDDEV
from meshtf.ops.variables.variable import Assign, Variable
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Plan
from meshtf.planning.stored_variables import StoredVariable

if TYPE_CHECKING:
    from meshtf.lowering.lowering import Lowering


def initialize(variables: Sequence[Variable], layouts: Mapping[str, TensorLayout], lowering: Lowering) -> None:
    """Makes the slices of `variables` in these layouts and computes their initial values on the cores."""
    store, mesh_impl = lowering.variables, lowering.device_mesh
    try:
        for variable in variables:
            store.create(variable, layouts[variable.full_name], mesh_impl, lowering.axis_parts)
        computed = [v for v in variables if v.spec.initializer is not zeros]  # slices are zero when they are made
        if not computed:
            return
        rules, axis_parts = mesh_impl.layout_rules, lowering.axis_parts
        mesh_shape = axis_parts.taken_apart(mesh_impl.shape)
        plan = initial_plan(computed, layouts, mesh_shape, rules, lowering.seed, axis_parts)
        plan = dataclasses.replace(plan, process_of_core=mesh_impl.process_of_core)
        program = mesh_impl.program(plan, handles(store, plan.variable_names), runs_once=True)
        with tf.init_scope():
            program([tf.convert_to_tensor(i.value) for i in inputs_of(plan)])
    except BaseException:
        # A variable without its initial value must not stay in the store.
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
    """The plan that assigns the initial values to slices in `layouts`.

    `rules` are the layout rules of intermediate tensors. Random bits are keyed by the variable's name.
    """
    graph = Graph("initial_values", is_initial=True)
    mesh = Mesh(graph)
    assignments = []
    with graph:
        for variable in variables:
            twin = Variable(mesh, variable.spec)
            with graph.variable_scopes_of(variable.full_name, variable.spec.layer_scopes):
                assignments.append(Assign(twin, initial_value(variable, mesh)))
    table = LayoutTable(mesh_shape, rules, axis_parts, max_padding=1.0)
    table.resolve(graph.operations)
    return make_plan(table, _Fixed(layouts), assignments, (), seed)


class _Fixed:
    def __init__(self, layouts: Mapping[str, TensorLayout]) -> None:
        self._layouts = layouts

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        return self._layouts[variable.full_name]


def initial_value(variable: Variable, mesh: Mesh) -> Tensor:
    """The initial value as a tensor of another graph. Its random bits are keyed by the scopes that are open in that
    graph."""
    try:
        value = cast(_initial_layers(variable, mesh), variable.slice_dtype)
    except MeshtfError as error:
        where_made = f'in the initializer of variable "{variable.full_name}" [{variable.shape}]\n  at {variable.site}'
        raise type(error)(f"{error}\n  {where_made}") from None
    for dim, own in zip(variable.shape, variable.unpadded_shape, strict=True):
        if own != dim:
            value = where(less(positions(mesh, dim, tf.int32), own.size), value, 0, output_shape=variable.shape)
    return value


def _initial_layers(variable: Variable, mesh: Mesh) -> Tensor:
    """The initial values of all layers, including the padding."""
    spec, shape = variable.spec, variable.shape
    initializer = RandomNormal(stddev=DEFAULT_STDDEV) if spec.initializer is None else spec.initializer
    if initializer in (zeros, ones):
        return initializer(mesh, shape, variable.slice_dtype)
    one = Shape([d for d in shape if d not in variable.stacked_dims])

    def layer() -> Tensor:
        value = check_tensor(initializer(mesh, one, variable.slice_dtype), "initial value")
        if value.shape != one:
            raise ShapeError(f"it must have the variable's shape, [{one}], and is {value}")
        return value

    stacks = [scope for scope in variable.spec.layer_scopes if scope.is_stacked]
    value = _each_layer(mesh, [scope.dim for scope in stacks], layer)
    for scope in stacks:
        if scope.stacked:
            value = replace_dimensions(value, scope.dim, scope.stacked)
    return transpose(value, shape)


def _each_layer(mesh: Mesh, layers: Sequence[Dimension], layer: Callable[[], Tensor]) -> Tensor:
    """Calls `layer` once for each layer, in scans over the dimensions `layers`. Random bits depend on the layer's
    number."""
    if not layers:
        return layer()
    outermost, *inner = layers
    body = ScanBody(
        lambda carried, parts: (carried, [_each_layer(mesh, inner, layer)]),
        outermost,
        KEEP_EVERYTHING,
        "layers",
        numbering=Numbering(Counted.LAYERS),
    )
    _, (values,) = body.scanned([zeros(mesh, [])], [])
    return values
