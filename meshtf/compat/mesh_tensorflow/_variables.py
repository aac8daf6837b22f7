"""Variables and their masters. The masters are TensorFlow's: sessions initialize, save and restore them.

The mesh holds the slices. `mtf.Lowering` copies between the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf import ops
from meshtf.call_sites import language_function
from meshtf.compat.mesh_tensorflow._graph import device_of_masters, graph_of, imported_scalar, is_of_tensorflow
from meshtf.dimension import ShapeLike, shape_of
from meshtf.errors import GraphError
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.ops.variables.variable import Variable, variable_of

Assigned: TypeAlias = "Variable | Tensor"
AssignFn: TypeAlias = Callable[..., Any]

_OWN_INITIALIZER = """\
the initializer of variable "{name}" is {given!r}, a function of the language; here masters are TensorFlow's, and take \
an initializer of TensorFlow's, such as tf.compat.v1.random_normal_initializer(stddev=0.02)"""


@language_function
def get_variable(  # noqa: PLR0913  # the original's parameters
    mesh: Mesh,
    name: str,
    shape: ShapeLike,
    dtype: tf.DType | VariableDType = tf.float32,
    master_dtype: tf.DType | None = None,
    slice_dtype: tf.DType | None = None,
    activation_dtype: tf.DType | None = None,
    initializer: Any = None,
    trainable: bool = True,
    **kwargs: Any,
) -> Tensor:
    """Returns the variable of this name in the open tf.variable_scopes.

    It makes the variable and its master if they do not exist yet.

    Args:
      mesh: the mesh that holds its slices.
      name: the name in TensorFlow's open scopes.
      shape: named shape.
      dtype: the default of the next three, or a `VariableDType` that has all three.
      master_dtype: the dtype of TensorFlow's variable and of its checkpoints.
      slice_dtype: the dtype that the mesh keeps and updates.
      activation_dtype: the dtype of the result.
      initializer: a TensorFlow initializer. By default the open scope's initializer, else TensorFlow's default.
      trainable: whether optimizers update it.
      **kwargs: passed to tf.compat.v1.get_variable.

    Raises:
      GraphError: it exists with another shape or dtype, or the initializer is not TensorFlow's.
    """
    graph, named = graph_of(mesh), shape_of(shape)
    scope = tf.compat.v1.get_variable_scope()
    full_name = f"{scope.name}/{name}" if scope.name else name
    policy = _policy(dtype, master_dtype, slice_dtype, activation_dtype)
    if full_name not in graph.masters:
        if _is_of_the_language(initializer):
            raise GraphError(_OWN_INITIALIZER.format(name=full_name, given=initializer))
        is_value = is_of_tensorflow(initializer) and not callable(initializer)
        with tf.compat.v1.variable_scope(scope, reuse=tf.compat.v1.AUTO_REUSE), device_of_masters(mesh):
            graph.masters[full_name] = tf.compat.v1.get_variable(
                name,
                None if is_value else named.to_integer_list,
                policy.master_dtype,
                initializer=initializer,
                trainable=trainable,
                use_resource=True,
                **kwargs,
            )
    with graph.root_scope():  # slices start with the master's value, so they need no initializer here
        made = ops.get_variable(mesh, full_name, named, policy, initializer=ops.zeros, trainable=trainable)
        graph.name_to_variable.setdefault(full_name, made.operation)
        return made


def _is_of_the_language(initializer: Any) -> bool:
    """Whether the initializer takes (mesh, shape, dtype), the arguments of the language's initializers.

    TensorFlow's take (shape, dtype).
    """
    module = str(getattr(initializer, "__module__", ""))
    return callable(initializer) and module.startswith("meshtf.") and not module.startswith("meshtf.compat.")


def _policy(dtype: tf.DType | VariableDType, *each: tf.DType | None) -> VariableDType:
    if isinstance(dtype, VariableDType):
        return dtype
    master, slices, activation = each
    whole = dtype_of(dtype or master or tf.float32)
    return VariableDType(dtype_of(master or whole), slices or whole, activation or whole)


def get_master(variable: Assigned) -> tf.Variable:
    """The TensorFlow variable from which a variable is initialized, and in which it is saved.

    Raises:
      GraphError: the argument is no variable of a graph of this module.
    """
    own = variable_of(variable)
    masters = graph_of(own.mesh).masters
    if own.full_name not in masters:
        raise GraphError(f'variable "{own.full_name}" has no master: it was not made by this module\'s get_variable')
    return masters[own.full_name]


def assign_slice(variable: Variable, present: Tensor, value: Tensor) -> Tensor:
    """The new value: the default of `assign`."""
    return value


def assign_add_slice(variable: Variable, present: Tensor, value: Tensor) -> Tensor:
    """The present value plus the new one."""
    return present + value


def assign_sub_slice(variable: Variable, present: Tensor, value: Tensor) -> Tensor:
    """The present value minus the new one."""
    return present - value


@language_function
def assign(var: Assigned, new_val: Any, assign_fn: AssignFn = assign_slice, name: str | None = None) -> Operation:
    """Gives a variable a new value when a session runs `lowering.lowered_operation` of the result.

    Args:
      var: the variable, or its tensor.
      new_val: a tensor of its shape, or a TensorFlow scalar for a scalar variable.
      assign_fn: `(variable, present value, new_val) -> value`, in the language and in the variable's `slice_dtype`.
      name: the operation's name; not used.

    Raises:
      GraphError: `var` is no variable.
      ShapeError: the value has other dimensions.
    """
    variable = variable_of(var)
    if is_of_tensorflow(new_val):
        new_val = imported_scalar(new_val, variable.mesh, variable.slice_dtype)
    value = ops.cast(new_val, variable.slice_dtype)
    if assign_fn is assign_slice:
        return ops.assign(variable, value).operation
    present = ops.cast(ops.read_variable(variable), variable.slice_dtype)
    return ops.assign(variable, assign_fn(variable, present, value)).operation


def assign_add(var: Assigned, new_val: Any) -> Operation:
    """Adds to a variable's value. See `assign`."""
    return assign(var, new_val, assign_add_slice)


def assign_sub(var: Assigned, new_val: Any) -> Operation:
    """Subtracts from a variable's value, in the dtype that the mesh keeps. See `assign`."""
    return assign(var, new_val, assign_sub_slice)
