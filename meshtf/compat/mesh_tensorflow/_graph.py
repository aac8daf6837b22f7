"""Graphs of programs for Mesh TensorFlow. Their scopes and master variables are TensorFlow's own."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

import tensorflow as tf

import meshtf as language
from meshtf import dimension
from meshtf.compat.mesh_tensorflow._dimension import own_shape
from meshtf.compat.mesh_tensorflow._splittability import splittability
from meshtf.compat.mesh_tensorflow.runs.step_count import StepCount
from meshtf.errors import GraphError, UsageError
from meshtf.ops.algebra.reduction import sum_to
from meshtf.ops.inputs.placeholder import import_tf_tensor

_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "splittable_dims": lambda operation: splittability(operation)[0],
    "unsplittable_dims": lambda operation: splittability(operation)[1],
    "to_string": repr,
    "size": lambda variable: variable.shape.size,
    "master_dtype": lambda variable: variable.dtype.master_dtype,
    "activation_dtype": lambda variable: variable.dtype.activation_dtype,
}


_NOT_HERE = {
    "clone_operations": "call mtf.recompute_grad or mtf.custom_gradient, whose gradient may call the function again",
    "rewrite_stack_variables": "leave it out: small variables are updated together without being stacked",
    "make_variables_untrainable": "give mtf.get_variable trainable=False, or the optimizer the others",
    "capture_operations": "compare graph.operations before and after the call",
}


class Tensor(language.Tensor):
    """A `meshtf.Tensor` that is always true and equals only itself, like the original.

    Args:
      operation: the operation that makes it.
      shape: its named shape.
      dtype: its element type.
      name: ignored. The operation's name counts.
      index: which of the operation's outputs it is.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> x = old.ones(old.Mesh(old.Graph(), "mesh"), "batch:4")
      >>> x.name, bool(x), x == 1
      ('constant:0', True, False)
    """

    def __init__(
        self,
        operation: language.Operation,
        shape: dimension.Shape,
        dtype: tf.DType,
        name: str | None = None,
        index: int = 0,
    ) -> None:
        super().__init__(operation, shape, dtype, index)

    @property
    def name(self) -> str:
        return f"{self.operation.name}:{self.index}"

    @property
    def to_string(self) -> str:
        return f"Tensor[{self.name}, {self.shape}, {self.dtype!r}]"

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __tf_tensor__(self, *_: object, **__: object) -> NoReturn:
        """Raises TypeError, at which TensorFlow's operators leave `tf.constant(2.0) * x` to `x`."""
        try:
            super().__tf_tensor__()
        except UsageError as error:
            raise TypeError(str(error)) from None

    def __repr__(self) -> str:
        return f"{super().name} [{self.shape}] {self.dtype.name}"


class Graph(language.Graph):
    """A `meshtf.Graph` that a program need not open with `with`. Operations find their graph from their operands.

    Attributes:
      masters: the TensorFlow variables by name. Sessions initialize, save and restore them; see `mtf.get_variable`.
      step_count: the number of the step, which optimizers read.
      name_to_variable: the variables by the program's names. Only the program uses it.
      captured_variable_scope: TensorFlow's variable scope in which the graph was made. Only the program uses it.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> old.ones(old.Mesh(old.Graph(), "mesh"), "batch:4")
      constant [batch:4] float32
    """

    def __init__(self) -> None:
        super().__init__("program")
        self.masters: dict[str, tf.Variable] = {}
        self.step_count = StepCount()
        self.name_to_variable: dict[str, language.Operation] = {}
        self.captured_variable_scope = tf.compat.v1.get_variable_scope()

    @property
    def all_variables(self) -> list[Any]:
        return list(self.variables.values())

    @property
    def _all_variables(self) -> list[Any]:
        return self.all_variables

    @property
    def to_string(self) -> str:
        return "\n".join(str(operation) for operation in self.operations)

    def checked_name(self, name: str, what: str) -> str:
        """Allows empty parts. TensorFlow's names have them inside of `tf.variable_scope("")` in another scope."""
        super().checked_name(re.sub("/+", "/", name) if isinstance(name, str) else name, what)
        return name

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """A name that no operation has. Names that differ only in capital letters count as the same."""
        found, own = super().unique_name(name.lower(), mark_as_used), self.scoped(name)
        return own + found[len(own) :]

    def tensor(self, operation: language.Operation, shape: dimension.Shape, dtype: tf.DType, index: int) -> Tensor:
        if index == 0:  # programs differentiate operation by operation, and add up what they get
            vars(operation)["gradient"] = functools.partial(_gradient_in_shape, operation)
        return Tensor(operation, own_shape(shape), dtype, index=index)

    def combine_assignments(self, assignments: Sequence[Any]) -> list[Any]:
        """Returns the assignments. One program runs all of a `tf.group` anyway."""
        return list(assignments)

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> NoReturn:
            hint = f"; {_NOT_HERE[name]}" if name in _NOT_HERE else ""
            raise AttributeError(f"a Graph of meshtf.compat.mesh_tensorflow has no attribute {name!r}{hint}")

    def label_variable(self, variable: language.Operation, name: str) -> None:
        """Ignores a program's own label. The variable is stored and saved under its own name."""

    def attribute_of(self, operation: language.Operation, name: str) -> Any:
        """An attribute that the original's operations have and the language's lack."""
        if name in _ATTRIBUTES:
            return _ATTRIBUTES[name](operation)
        return super().attribute_of(operation, name)

    def check_scope_of_tensorflow(self) -> None:
        """Allows an open tf.variable_scope, because here it names variables."""

    def operand(self, value: Any, beside: language.Tensor) -> Any:
        """Imports a scalar of TensorFlow's in the dtype of the tensor beside it."""
        return imported_scalar(value, beside.mesh, beside.dtype) if is_of_tensorflow(value) else value


def _gradient_in_shape(operation: language.Operation, grad_ys: Sequence[Tensor | None]) -> list[Any]:
    """The gradients of the inputs, in the inputs' shapes. The language's own may have more dimensions to sum over."""
    found = type(operation).gradient(operation, grad_ys)
    return [None if dx is None else sum_to(dx, x.shape) for x, dx in zip(operation.inputs, found, strict=True)]


class Mesh(language.Mesh):
    """A tag that says on which mesh a tensor lives.

    Args:
      graph: an `mtf.Graph` of this module.
      name: the mesh's name.
      variable_placer: chooses a device for each master. By default this is the host's first CPU.

    Raises:
      GraphError: the graph is another one.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> old.Mesh(old.Graph(), "my_mesh").name
      'my_mesh'
    """

    def __init__(self, graph: Graph, name: str = "mesh", variable_placer: object = None) -> None:
        if not isinstance(graph, Graph):
            raise GraphError(
                f"a mesh of meshtf.compat.mesh_tensorflow needs its own mtf.Graph(), and not {type(graph).__name__}"
            )
        super().__init__(graph, name)
        self.variable_placer_fn: Any = getattr(variable_placer, "device_function", "cpu:0")


def device_of_masters(mesh: language.Mesh) -> AbstractContextManager[Any]:
    """A context in which TensorFlow makes variables on the device that the mesh's placer chooses.

    Eager execution takes no function as a device. There the first CPU holds all masters.
    """
    placer = getattr(mesh, "variable_placer_fn", "cpu:0")
    return tf.compat.v1.device("cpu:0" if callable(placer) and tf.executing_eagerly() else placer)


def graph_of(mesh: language.Mesh) -> Graph:
    """The `Graph` of a mesh.

    Raises:
      GraphError: the mesh belongs to a graph of another class.
    """
    if not isinstance(mesh.graph, Graph):
        raise GraphError(
            "a mesh of meshtf.compat.mesh_tensorflow is needed here, made by its mtf.Mesh(mtf.Graph(), name); "
            "in the body of an mtf.function use the names of meshtf itself"
        )
    return mesh.graph


def is_of_tensorflow(value: object) -> bool:
    """Whether the value is a TensorFlow tensor or variable."""
    return isinstance(value, tf.Tensor | tf.Variable) or (
        tf.is_tensor(value) and not isinstance(value, language.Tensor)
    )


def imported_scalar(value: Any, mesh: language.Mesh, dtype: tf.DType) -> language.Tensor:
    """Imports a TensorFlow scalar.

    Raises:
      GraphError: the tensor is no scalar. Only `mtf.import_tf_tensor` can name its dimensions.
    """
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank != 0:
        raise GraphError(
            f"a tf.Tensor of shape {tensor.shape} stands beside a tensor of the language; name its dimensions with "
            f"mtf.import_tf_tensor(mesh, x, shape)"
        )
    return import_tf_tensor(mesh, tf.cast(tensor, dtype), [])
