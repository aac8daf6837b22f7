"""Variables: made by name, read as the program starts, assigned in program order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DtypeError, GraphError, MeshtfError, ShapeError
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
from meshtf.lowering.planner import Planner
from meshtf.ops.arithmetic import add, sub
from meshtf.ops.elementwise import cast
from meshtf.ops.inputs import import_tf_tensor, ones, zeros
from meshtf.ops.random import RandomNormal
from meshtf.sites import language_function

Initializer: TypeAlias = Callable[[Mesh, Shape, tf.DType], Tensor]


class Variable(Operation):
    """A named variable. Its output is its value when the program starts, in the activation dtype."""

    def __init__(
        self, mesh: Mesh, name: str, shape: Shape, dtype: VariableDType, initializer: Any, trainable: bool
    ) -> None:
        assert dtype.activation_dtype is not None
        with mesh.graph.outermost():
            super().__init__([], [(shape, dtype.activation_dtype)], name=name, mesh=mesh)
        self.full_name = mesh.graph.scoped(name)
        self.shape = shape
        self.dtype = dtype
        self.initializer = initializer
        self.trainable = trainable
        mesh.graph.variables[self.full_name] = self

    @property
    def value(self) -> Tensor:
        return self.outputs[0]

    @property
    def slice_dtype(self) -> tf.DType:
        assert self.dtype.slice_dtype is not None
        return self.dtype.slice_dtype

    def initial_value(self, mesh: Mesh) -> Tensor:
        """The initial value as a tensor of another graph, whose open scope keys its random bits."""
        if not callable(self.initializer):
            return import_tf_tensor(mesh, np.asarray(self.initializer, self.slice_dtype.as_numpy_dtype), self.shape)
        try:
            value = check_tensor(self.initializer(mesh, self.shape, self.slice_dtype), "initial value")
            if value.shape != self.shape:
                raise ShapeError(f"it must have the variable's shape, and is {value}")
            return cast(value, self.slice_dtype)
        except MeshtfError as error:
            where = f'in the initializer of variable "{self.full_name}" [{self.shape}]\n  at {self.site}'
            raise type(error)(f"{error}\n  {where}") from None

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

    Raises:
      GraphError: it exists with another shape or dtype.
    """
    policy = _policy(check_mesh(mesh), dtype)
    named = shape_of(shape)
    existing = mesh.graph.variables.get(mesh.graph.scoped(name))
    if existing is not None:
        assert isinstance(existing, Variable)
        if existing.shape != named or existing.dtype != policy:
            raise GraphError(
                f'variable "{existing.full_name}" exists with [{existing.shape}] {existing.slice_dtype.name}, made at '
                f"{existing.site}; it is asked for again with [{named}] {policy.slice_dtype.name}: give one of them "  # type: ignore[union-attr]
                f"another name, or open a scope"
            )
        return existing.value
    chosen = RandomNormal(stddev=0.02) if initializer is None else initializer
    if not callable(chosen) and list(np.shape(chosen)) != named.to_integer_list:
        raise ShapeError(
            f'the initial value of variable "{name}" [{named}] is an array of shape {list(np.shape(chosen))}'
        )
    return Variable(mesh, name, named, policy, chosen, trainable).value


@language_function
def assign(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Gives the variable a new value when the program ends; `read_variable` sees it from here on. Returns it."""
    variable = variable_of(var)
    _check_assigned(variable, check_tensor(new_val))
    return Assign(variable, _ordered(new_val, variable.shape)).outputs[0]


@language_function
def assign_add(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Adds to the variable's present value, in the precision in which it is stored. Returns the new one."""
    variable = variable_of(var)
    return assign(variable, add(*_stored_and_given(variable, new_val)))


@language_function
def assign_sub(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Subtracts from the variable's present value, in the precision in which it is stored. Returns the new one."""
    variable = variable_of(var)
    return assign(variable, sub(*_stored_and_given(variable, new_val)))


@language_function
def read_variable(var: Variable | Tensor) -> Tensor:
    """The variable's value at this place in the program."""
    return ReadVariable(variable_of(var)).outputs[0]


def variable_of(x: Variable | Tensor) -> Variable:
    """The variable, from itself or the tensor that `get_variable` gave."""
    operation = x.operation if isinstance(x, Tensor) else x
    if not isinstance(operation, Variable):
        raise GraphError(f"{x} is not a variable; give what mtf.get_variable returned")
    return operation


def program_step(mesh: Mesh) -> Tensor:
    """How many times the program has run (int64 scalar): a saved variable, counted when it uses random bits."""
    graph = mesh.graph
    name = f"{graph.name}/step"
    existing = graph.variables.get(name)
    if existing is not None:
        return existing.outputs[0]
    with graph.root_scope():
        return Variable(mesh, name, Shape([]), VariableDType(tf.int64), zeros, False).value


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


def _ordered(x: Tensor, shape: Shape) -> Tensor:
    from meshtf.ops.einsum import transpose

    return transpose(x, shape)
