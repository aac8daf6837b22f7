"""Assignments to variables, and reads of variables after them."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import add, sub
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.variables.variable import Assign, ReadVariable, Variable, variable_of


@language_function
def assign(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Assigns a new value to the variable at the end of the program, and returns the value.

    From here on, `read_variable` returns the new value.

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
    """Adds to the variable's current value, in the precision in which it is stored, and returns the new value.

    Examples:
      >>> count = mtf.get_variable(mesh, "count", [], initializer=mtf.zeros)
      >>> value(mtf.assign_add(count, mtf.constant(mesh, 2.0)))
      np.float32(2.0)
    """
    variable = variable_of(var)
    return assign(variable, add(*_stored_and_given(variable, new_val)))


@language_function
def assign_sub(var: Variable | Tensor, new_val: Tensor) -> Tensor:
    """Subtracts from the variable's current value, in the precision in which it is stored, and returns the new value.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> mtf.assign_sub(w, 0.1 * mtf.reduce_mean(x, reduced_dim="batch"))
      assign [hidden:8] float32
    """
    variable = variable_of(var)
    return assign(variable, sub(*_stored_and_given(variable, new_val)))


@language_function
def read_variable(var: Variable | Tensor, dtype: tf.DType | None = None) -> Tensor:
    """The variable's value at this place in the program.

    The default of `dtype` is the dtype in which programs read the variable.

    Examples:
      >>> total = mtf.get_variable(mesh, "total", [], initializer=mtf.zeros)
      >>> _ = mtf.assign(total, mtf.constant(mesh, 5.0))
      >>> value(mtf.read_variable(total)), value(total)
      (np.float32(5.0), np.float32(0.0))
    """
    return ReadVariable(variable_of(var), None if dtype is None else dtype_of(dtype)).outputs[0]


def _stored_and_given(variable: Variable, value: Tensor) -> tuple[Tensor, Tensor]:
    """The variable's current value and another value, both in the dtype in which the variable is stored."""
    _check_dtype(variable, check_tensor(value))
    stored = ReadVariable(variable, variable.slice_dtype).outputs[0]
    return stored, cast(value, variable.slice_dtype)


def _check_assigned(variable: Variable, value: Tensor) -> None:
    if {d.name: d.size for d in variable.shape} != {d.name: d.size for d in value.shape}:
        raise ShapeError(
            f'variable "{variable.full_name}" is [{variable.shape}]; [{value.shape}] cannot be assigned to it; '
            f"the dimensions must be the variable's, in any order"
        )
    _check_dtype(variable, value)


def _check_dtype(variable: Variable, value: Tensor) -> None:
    if value.dtype not in (variable.value.dtype, variable.slice_dtype):
        raise DtypeError(
            f'variable "{variable.full_name}" is {variable.value.dtype.name}; {value.dtype.name} cannot be assigned; '
            f"convert it with mtf.cast"
        )
