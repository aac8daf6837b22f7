"""The variables of a function that computes several layers.

A rehearsal finds which variables the function makes. Later calls receive these.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import tensorflow as tf

from meshtf.control_flow._blocks import BlockInputOperation
from meshtf.dimension import Dimension, Shape
from meshtf.errors import GraphError
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import LayerScope
from meshtf.ops.variables.get_variable import MakesVariables
from meshtf.ops.variables.variable import VariableSpec


@contextlib.contextmanager
def inside_layers(mesh: Mesh, scope: LayerScope, maker: MakesVariables) -> Iterator[None]:
    """Enters the scope of the layers, in which `maker` provides the variables."""
    makers = mesh.graph.makes_variables
    makers.append(maker)
    try:
        with mesh.graph.inside_layers(scope):
            yield
    finally:
        makers.pop()


class RehearsedVariables:
    """Records which variables a layer makes, and returns placeholders, with the dimensions `leading` in front."""

    def __init__(self, mesh: Mesh, scope: LayerScope, leading: Sequence[Dimension] = ()) -> None:
        self._mesh, self._scope, self._leading = mesh, scope, tuple(leading)
        self._place = mesh.graph.place
        self._stand_ins: dict[str, Tensor] = {}
        self.specs: dict[str, VariableSpec] = {}

    def makes(self, full_name: str) -> bool:
        return self._scope.has(full_name)

    def make(self, spec: VariableSpec) -> Tensor:
        known = self.specs.setdefault(spec.full_name, spec)
        if not known.is_alike(spec):
            raise GraphError(f'a layer asks for variable "{spec.full_name}" as {known}, and again as {spec}')
        if spec.full_name not in self._stand_ins:
            assert spec.dtype.activation_dtype is not None
            shape = Shape([*self._leading, *spec.shape])
            given = stand_in(self._mesh, shape, spec.dtype.activation_dtype)
            given.operation.place = self._place  # the layer's place, even if an inner block is first to use it
            self._stand_ins[spec.full_name] = given
        return self._stand_ins[spec.full_name]


@dataclasses.dataclass(frozen=True)
class GivenVariables:
    """Returns the function's parts of the variables, by the variables' names."""

    scope: LayerScope
    parts: dict[str, Tensor]

    def makes(self, full_name: str) -> bool:
        return self.scope.has(full_name)

    def make(self, spec: VariableSpec) -> Tensor:
        if spec.full_name not in self.parts:
            raise GraphError(
                f'a layer makes variable "{spec.full_name}" that it did not make in the rehearsal; it must make the '
                f"same variables whenever it is called"
            )
        return self.parts[spec.full_name]


def stand_in(mesh: Mesh, shape: Shape, dtype: tf.DType) -> Tensor:
    """A placeholder tensor for a rehearsal, in the block that is being built."""
    tensor = BlockInputOperation(mesh, shape, dtype, "given").outputs[0]
    tensor.operation.place = mesh.graph.place
    return tensor
