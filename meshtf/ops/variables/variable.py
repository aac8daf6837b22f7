"""Variables as operations: their value at the start, their value at a place in the program, and assignments."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from meshtf.dimension import Shape, described
from meshtf.errors import GraphError
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.layer_scopes import LayerScope, ScopedName, layer_names, stacked_dims
from meshtf.ops.variables._initializers import Initializer
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.planner import Planner


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """The description of a variable.

    Attributes:
      full_name: its name, scopes included.
      shape: the shape that cores hold.
      dtype: the dtypes in files, on the device, and in the program.
      initializer: makes one layer's initial value; None: normal numbers, see `DEFAULT_STDDEV`.
      trainable: whether optimizers update it.
      unpadded_shape: the shape that users and files see. It is no larger than `shape`, whose ends are then zeros.
      layer_scopes: the scopes of layers in which it is made, outermost first.
      matrix: if given, the names of the dimensions that a layer sums over, and of those that it makes. The others count
        matrices.
    """

    full_name: str
    shape: Shape
    dtype: VariableDType
    initializer: Initializer | None
    trainable: bool
    unpadded_shape: Shape
    layer_scopes: tuple[LayerScope, ...] = ()
    matrix: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def is_alike(self, other: VariableSpec) -> bool:
        """Whether both may be one variable."""
        return (self.shape, self.unpadded_shape, self.dtype) == (other.shape, other.unpadded_shape, other.dtype)

    def __str__(self) -> str:
        assert self.dtype.slice_dtype is not None
        return f"{described(self.shape, self.unpadded_shape)} {self.dtype.slice_dtype.name}"


class Variable(Operation):
    """A named variable. Its output is its value when the program starts, in the activation dtype.

    Examples:
      >>> w = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:16", tf.bfloat16)
      >>> variable = mesh.graph.variables["kernel"]
      >>> isinstance(variable, mtf.Variable), variable.full_name, variable.slice_dtype.name, variable.value is w
      (True, 'kernel', 'bfloat16', True)
    """

    takes_padding = True

    def __init__(self, mesh: Mesh, spec: VariableSpec) -> None:
        assert spec.dtype.activation_dtype is not None
        # A variable made inside a loop or a branch must exist outside it too.
        with mesh.graph.outermost(), mesh.graph.root_scope():
            super().__init__([], [(spec.shape, spec.dtype.activation_dtype)], name=spec.full_name, mesh=mesh)
        self.scoped_name = ScopedName(spec.full_name, spec.layer_scopes)
        self.spec = spec
        self.shape = spec.shape
        self.unpadded_shape = spec.unpadded_shape
        self.dtype = spec.dtype
        self.trainable = spec.trainable
        self.is_assigned = False
        """Whether the program assigns it."""
        mesh.graph.variables[self.full_name] = self

    @property
    def full_name(self) -> str:
        """The variable's name with scopes, as in files and in stores."""
        return self.spec.full_name

    @full_name.setter
    def full_name(self, name: str) -> None:
        self.graph.label_variable(self, name)

    @property
    def value(self) -> Tensor:
        return self.outputs[0]

    @property
    def why_no_tensor(self) -> str:
        """The message of an error, where a tensor is needed."""
        return f"{self.full_name} is a variable, and not a tensor; its tensor is variable.value"

    @property
    def slice_dtype(self) -> tf.DType:
        assert self.dtype.slice_dtype is not None
        return self.dtype.slice_dtype

    @property
    def stacked_dims(self) -> Shape:
        """The dimensions that count the layers of a stack; empty for all but a stack's variables."""
        return stacked_dims(self.spec.layer_scopes)

    @property
    def saved_names(self) -> tuple[str, ...]:
        """The names of its layers' parts in files, in row-major order of `stacked_dims`. Without a stack: its name."""
        return layer_names(self.full_name, self.spec.layer_scopes)

    def lower(self, planner: Planner) -> None:
        planner.write(self.value, _cast_value(planner, planner.variables.stored(self), self.value.dtype))


class ReadVariable(Operation):
    """A variable's value at this place in the program, after the assignments before it."""

    takes_padding = True

    def __init__(self, variable: Variable, dtype: tf.DType | None = None) -> None:
        spec = (variable.shape, dtype or variable.value.dtype)
        super().__init__([], [spec], name="read_variable", mesh=variable.mesh)
        self.scoped_name = variable.scoped_name
        self.variable = variable

    def lower(self, planner: Planner) -> None:
        stored = planner.variables.stored(self.variable)
        planner.write(self.outputs[0], _cast_value(planner, stored, self.outputs[0].dtype))


class Assign(Operation):
    """Gives a variable a new value."""

    has_side_effect = True
    takes_padding = True

    def __init__(self, variable: Variable, value: Tensor, name: str = "assign") -> None:
        super().__init__([value], [(value.shape, variable.value.dtype)], name=name)
        self.scoped_name = variable.scoped_name
        self.variable = variable
        variable.is_assigned = True

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        value = planner.read(self.inputs[0], planner.variables.layout(self.variable), fill=None)
        stored = _cast_value(planner, value, self.variable.slice_dtype)
        planner.variables.assign(self.variable.full_name, stored)
        if planner.readers.is_used(self.outputs[0]):
            planner.write(self.outputs[0], _cast_value(planner, stored, self.outputs[0].dtype))


def _cast_value(planner: Planner, value: Any, dtype: tf.DType) -> Any:
    if value.dtype == dtype:
        return value
    spec = (value.shape, dtype, value.layout)
    return planner.compute("cast", lambda core, x: tf.cast(x, dtype), [value], [spec], facts=WorkFacts(is_cast=True))[0]


def variable_of(x: Variable | Tensor) -> Variable:
    """The variable itself, or the variable of a tensor that `get_variable` returned.

    Raises:
      GraphError: it is no variable.
    """
    operation = x.operation if isinstance(x, Tensor) else x
    if not isinstance(operation, Variable):
        if not isinstance(x, Operation | Tensor):
            raise GraphError(f"{x!r} is not a variable; give the result of mtf.get_variable")
        hint = "; a layer of a stack that is a scan cannot assign its variables: give mtf.layer_stack unroll=True"
        raise GraphError(
            f"{x} is not a variable; give the result of mtf.get_variable{hint if x.graph.makes_variables else ''}"
        )
    return operation
