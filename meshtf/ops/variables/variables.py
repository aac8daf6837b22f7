"""Variables: made by name, read as the program starts, assigned in program order."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike, described
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.graph import (
    Mesh,
    Operation,
    Tensor,
    VariableDType,
    check_mesh,
    check_tensor,
    dtype_of,
    shape_of,
    with_nested,
)
from meshtf.layer_scopes import LayerScope, layer_names, scopes_of, stacked_dims
from meshtf.ops.algebra.arithmetic import add, sub
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.inputs import ones, zeros
from meshtf.ops.variables.initializers import Initializer, initializer_of
from meshtf.planning.planner import Planner

DEFAULT_STDDEV = 0.02
"""Of the normal numbers that a variable starts with, where it is given no initializer."""


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """What a variable is.

    Attributes:
      full_name: its name, scopes included.
      shape: as cores hold it.
      dtype: in files, on the device, and as the program reads it.
      initializer: gives one layer's initial value; None: normal numbers, see `DEFAULT_STDDEV`.
      trainable: whether optimizers update it.
      unpadded_shape: as users and files see it: no larger than `shape`, whose ends are then zeros.
      layer_scopes: the scopes of layers in which it is made, outermost first.
    """

    full_name: str
    shape: Shape
    dtype: VariableDType
    initializer: Initializer | None
    trainable: bool
    unpadded_shape: Shape
    layer_scopes: tuple[LayerScope, ...] = ()

    def is_alike(self, other: VariableSpec) -> bool:
        """Whether both may be one variable."""
        return (self.shape, self.unpadded_shape, self.dtype) == (other.shape, other.unpadded_shape, other.dtype)

    def __str__(self) -> str:
        assert self.dtype.slice_dtype is not None
        return f"{described(self.shape, self.unpadded_shape)} {self.dtype.slice_dtype.name}"


class MakesVariables(Protocol):
    """What gives a layer its part of the variables of a stack."""

    def makes(self, full_name: str) -> bool: ...

    def make(self, spec: VariableSpec) -> Tensor: ...


class Variable(Operation):
    """A named variable. Its output is its value when the program starts, in the activation dtype.

    Examples:
      >>> w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16", tf.bfloat16)
      >>> variable = mesh.graph.variables["kernel"]
      >>> isinstance(variable, mtf.Variable), variable.full_name, variable.slice_dtype.name, variable.value is w
      (True, 'kernel', 'bfloat16', True)
    """

    def __init__(self, mesh: Mesh, spec: VariableSpec) -> None:
        assert spec.dtype.activation_dtype is not None
        with mesh.graph.outermost(), mesh.graph.root_scope():
            super().__init__([], [(spec.shape, spec.dtype.activation_dtype)], name=spec.full_name, mesh=mesh)
        self.spec = spec
        self.full_name = spec.full_name
        self.shape = spec.shape
        self.unpadded_shape = spec.unpadded_shape
        self.dtype = spec.dtype
        self.trainable = spec.trainable
        mesh.graph.variables[self.full_name] = self

    @property
    def value(self) -> Tensor:
        return self.outputs[0]

    @property
    def slice_dtype(self) -> tf.DType:
        assert self.dtype.slice_dtype is not None
        return self.dtype.slice_dtype

    @property
    def stacked_dims(self) -> Shape:
        """Those of its dimensions that count the layers of a stack: empty for all but a stack's variables."""
        return stacked_dims(self.spec.layer_scopes)

    @property
    def saved_names(self) -> tuple[str, ...]:
        """The names of its layers' parts in files, in row-major order of `stacked_dims`; else its own alone."""
        return layer_names(self.full_name, self.spec.layer_scopes)

    def lower(self, planner: Planner) -> None:
        planner.write(self.value, _cast_value(planner, planner.stored(self), self.value.dtype))


class ReadVariable(Operation):
    """A variable's value at this place in the program: after the assignments before it."""

    def __init__(self, variable: Variable, dtype: tf.DType | None = None) -> None:
        spec = (variable.shape, dtype or variable.value.dtype)
        super().__init__([], [spec], name="read_variable", mesh=variable.mesh)
        self.variable = variable

    def lower(self, planner: Planner) -> None:
        stored = planner.stored(self.variable)
        planner.write(self.outputs[0], _cast_value(planner, stored, self.outputs[0].dtype))


class Assign(Operation):
    """Gives a variable a new value."""

    has_side_effect = True

    def __init__(self, variable: Variable, value: Tensor, name: str = "assign") -> None:
        super().__init__([value], [(value.shape, variable.value.dtype)], name=name)
        self.variable = variable

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        value = planner.read(self.inputs[0], planner.stored_layout(self.variable))
        stored = _cast_value(planner, value, self.variable.slice_dtype)
        planner.assign(self.variable.full_name, stored)
        planner.write(self.outputs[0], _cast_value(planner, stored, self.outputs[0].dtype))


def _cast_value(planner: Planner, value: Any, dtype: tf.DType) -> Any:
    if value.dtype == dtype:
        return value
    spec = (value.shape, dtype, value.layout)
    return planner.compute("cast", lambda core, x: tf.cast(x, dtype), [value], [spec])[0]


@language_function
def get_variable(
    mesh: Mesh,
    name: str,
    shape: ShapeLike,
    dtype: tf.DType | VariableDType | None = None,
    initializer: Initializer | Any | None = None,
    trainable: bool = True,
    *,
    unpadded_shape: ShapeLike | None = None,
) -> Tensor:
    """The variable of this name under the open scopes, as a tensor; made where it is not there yet.

    Args:
      mesh: where it lives.
      name: under the open scopes.
      shape: named shape.
      dtype: the graph's policy by default.
      initializer: `(mesh, shape, dtype) -> tensor` in the language, computed slice by slice, or an array. By default
        normal with standard deviation 0.02.
      trainable: whether optimizers update it.
      unpadded_shape: where the variable is held larger than it is, so that a dimension can be split: the same names,
        and sizes that are no larger. What is beyond starts as zeros; the store and checkpoints know only what is
        inside, and so does an initial value that is an array.

    Raises:
      GraphError: it exists with another shape or dtype; or `initializer` is neither such a function nor an array; or
        a tf.variable_scope is open, which would not name it.
      DtypeError: it is not floating, and has no `initializer`.
      ShapeError: `unpadded_shape` is no part of `shape`, or an initial array has another shape.

    Examples:
      >>> with mtf.variable_scope("layer"):
      ...     w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16")
      >>> w
      layer/kernel [hidden:8 d_ff:16] float32
      >>> mtf.get_variable(mesh, "counts", "vocab:16", tf.int32, initializer=mtf.zeros, trainable=False)
      counts [vocab:16] int32
    """
    graph, policy, named = check_mesh(mesh).graph, _policy(mesh, dtype), shape_of(shape)
    graph.check_scope_of_tensorflow()
    own = named if unpadded_shape is None else shape_of(unpadded_shape)
    if own.dimension_names != named.dimension_names or any(m.size > n.size for m, n in zip(own, named, strict=True)):
        raise ShapeError(
            f"unpadded_shape [{own}] must have the names of shape [{named}], in order, and no larger sizes"
        )
    assert policy.slice_dtype is not None
    if initializer is None and not policy.slice_dtype.is_floating:
        raise DtypeError(
            f'variable "{name}" of {policy.slice_dtype.name} needs an initializer, such as mtf.zeros: the normal '
            f"numbers of the default are floating"
        )
    chosen = None if initializer is None else initializer_of(name, initializer, own, named, policy.slice_dtype)
    full_name = graph.scoped(name)
    scopes = scopes_of(full_name, graph.layer_scopes)
    return make_variable(mesh, VariableSpec(full_name, named, policy, chosen, trainable, own, scopes))


def make_variable(mesh: Mesh, spec: VariableSpec) -> Tensor:
    """The variable's value; inside a stack of layers that is a scan, its part for the layer."""
    for maker in reversed(mesh.graph.makes_variables):
        if maker.makes(spec.full_name):
            return maker.make(spec)
    existing = mesh.graph.variables.get(spec.full_name)
    if existing is None:
        return Variable(mesh, spec).value
    assert isinstance(existing, Variable)
    if not existing.spec.is_alike(spec):
        raise GraphError(
            f'variable "{existing.full_name}" exists with {existing.spec}, made at {existing.site}; it is asked for '
            f"again with {spec}: give one of them another name, or open a scope"
        )
    return existing.value


@language_function
def like_variable(
    variable: Variable, name: str, shape: ShapeLike | None = None, dtype: tf.DType = tf.float32
) -> Tensor:
    """State that belongs to a variable, zero at first: `<variable's name>/<name>`, not trainable.

    It is padded, stacked, saved and, under the same rules, laid out like the variable.

    Args:
      variable: of the graph.
      name: of the state.
      shape: dimensions of the variable; all of them by default.
      dtype: of the state.

    Raises:
      ShapeError: a dimension is not one of the variable's.

    Examples:
      >>> w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16")
      >>> variable = mesh.graph.variables["kernel"]
      >>> mtf.like_variable(variable, "momentum"), mtf.like_variable(variable, "row_mean", "hidden:8")
      (kernel/momentum [hidden:8 d_ff:16] float32, kernel/row_mean [hidden:8] float32)
    """
    chosen = variable.shape if shape is None else shape_of(shape)
    own = Shape([variable.unpadded_shape.dims[variable.shape.axis(d)] for d in chosen])
    scopes = tuple(
        s for s in variable.spec.layer_scopes if not s.is_stacked or all(chosen.has(d.name) for d in s.stacked_dims)
    )
    full_name = f"{variable.full_name}/{name}"
    return make_variable(
        variable.mesh, VariableSpec(full_name, chosen, VariableDType(dtype), zeros, False, own, scopes)
    )


@language_function
def assign(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Gives the variable a new value when the program ends; `read_variable` sees it from here on. Returns it.

    Examples:
      >>> mean = mtf.get_variable(mesh, "mean", "hidden:8", trainable=False)
      >>> mtf.assign(mean, 0.9 * mean + 0.1 * mtf.reduce_mean(x, reduced_dim="batch"))
      assign [hidden:8] float32
    """
    variable = variable_of(var)
    _check_assigned(variable, check_tensor(new_val))
    return Assign(variable, transpose(new_val, variable.shape)).outputs[0]


@language_function
def assign_add(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Adds to the variable's present value, in the precision in which it is stored. Returns the new one.

    Examples:
      >>> count = mtf.get_variable(mesh, "count", [], initializer=mtf.zeros)
      >>> value(mtf.assign_add(count, mtf.constant(mesh, 2.0)))
      np.float32(2.0)
    """
    variable = variable_of(var)
    return assign(variable, add(*_stored_and_given(variable, new_val)))


@language_function
def assign_sub(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Subtracts from the variable's present value, in the precision in which it is stored. Returns the new one.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> mtf.assign_sub(w, 0.1 * mtf.reduce_mean(x, reduced_dim="batch"))
      assign [hidden:8] float32
    """
    variable = variable_of(var)
    return assign(variable, sub(*_stored_and_given(variable, new_val)))


@language_function
def read_variable(var: Variable | Tensor, dtype: tf.DType | None = None) -> Tensor:
    """The variable's value at this place in the program, in a dtype; by default the one in which programs read it.

    Examples:
      >>> total = mtf.get_variable(mesh, "total", [], initializer=mtf.zeros)
      >>> _ = mtf.assign(total, mtf.constant(mesh, 5.0))
      >>> value(mtf.read_variable(total)), value(total)
      (np.float32(5.0), np.float32(0.0))
    """
    return ReadVariable(variable_of(var), None if dtype is None else dtype_of(dtype)).outputs[0]


def variable_of(x: Variable | Tensor) -> Variable:
    """The variable, from itself or the tensor that `get_variable` gave."""
    operation = x.operation if isinstance(x, Tensor) else x
    if not isinstance(operation, Variable):
        hint = "; a layer of a stack that is a scan cannot assign its variables: give mtf.layer_stack unroll=True"
        raise GraphError(
            f"{x} is not a variable; give what mtf.get_variable returned{hint if x.graph.makes_variables else ''}"
        )
    return operation


def program_step(mesh: Mesh) -> Tensor:
    """How many times the program has run (int64 scalar): a saved variable, counted when it uses random bits."""
    graph = mesh.graph
    name = f"{graph.name}/step"
    existing = graph.variables.get(name)
    if existing is not None:
        return existing.outputs[0]
    return Variable(mesh, VariableSpec(name, Shape([]), VariableDType(tf.int64), zeros, False, Shape([]))).value


def count_step(mesh: Mesh) -> None:
    """Makes the program count its runs, if it has random bits that depend on the count and does not count yet."""
    graph = mesh.graph
    step = graph.variables.get(f"{graph.name}/step")
    if step is None or any(isinstance(o, Assign) and o.variable is step for o in with_nested(graph.operations)):
        return
    with graph.root_scope():
        assign_add(step.outputs[0], ones(mesh, [], tf.int64))


def _policy(mesh: Mesh, dtype: tf.DType | VariableDType | None) -> VariableDType:
    if isinstance(dtype, VariableDType):
        return dtype
    return mesh.graph.variable_dtype if dtype is None else VariableDType(dtype_of(dtype))


def _stored_and_given(variable: Variable, value: Tensor) -> tuple[Tensor, Tensor]:
    """The variable's present value and another, both in the dtype in which it is stored."""
    _check_dtype(variable, check_tensor(value))
    stored = ReadVariable(variable, variable.slice_dtype).outputs[0]
    return stored, cast(value, variable.slice_dtype)


def _check_assigned(variable: Variable, value: Tensor) -> None:
    if {d.name: d.size for d in variable.shape} != {d.name: d.size for d in value.shape}:
        raise ShapeError(
            f'variable "{variable.full_name}" is [{variable.shape}]; [{value.shape}] cannot be assigned; its '
            f"dimensions must be the variable's, in any order"
        )
    _check_dtype(variable, value)


def _check_dtype(variable: Variable, value: Tensor) -> None:
    if value.dtype not in (variable.value.dtype, variable.slice_dtype):
        raise DtypeError(
            f'variable "{variable.full_name}" is {variable.value.dtype.name}; {value.dtype.name} cannot be assigned; '
            f"convert it with mtf.cast"
        )
