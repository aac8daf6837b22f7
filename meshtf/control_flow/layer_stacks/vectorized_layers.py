"""Vectorized layers: several layers of a stack computed at once, each with its own weights and random bits.

The layers are vectorized along a dimension, like a batch. With `along` = stage:2, a dense layer of [batch, hidden]
multiplies [stage, batch, hidden] by weights [stage, hidden, hidden']. If a mesh axis splits `stage`, each core computes
one layer. Pipelines use this.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.control_flow._blocks import as_tensors
from meshtf.control_flow.layer_stacks._layer_variables import (
    GivenVariables,
    RehearsedVariables,
    inside_layers,
    stand_in,
)
from meshtf.dimension import Dimension, Shape
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.blocks import with_nested
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import BatchCut, LayerScope, Vectorization, vectorization_of
from meshtf.ops.variables.get_variable import make_variable
from meshtf.ops.variables.variable import VariableSpec
from meshtf.takes_mesh import takes_mesh

ManyLayersFn = Callable[[list[Tensor]], Sequence[Tensor]]


@dataclasses.dataclass(frozen=True, eq=False)
class VectorizedLayers:
    """The layers of a stack, computed at once along one dimension.

    A layer is an ordinary function over tensors that have one more dimension, `along`. Variables from
    `mtf.get_variable` and random numbers have `along` as first dimension. Under every layout, each layer's results,
    variables in files, initial values and random bits are those of `mtf.layer_stack`.

    Attributes:
      fn: `fn(inputs) -> outputs`, for one layer.
      along: the dimension of the layers that are computed at once.
      mesh: the mesh of the layers.
      scope: the layers' scope.
      specs: one layer's variables.
      weights: the variables of all layers, each [*dims, ...]; see `mtf.vectorized_layers`.

    Examples:
      >>> stage, hidden = mtf.Dimension("stage", 2), mtf.Dimension("hidden", 8)
      >>> inputs = [(mtf.Shape([stage, hidden]), tf.float32)]
      >>> both = mtf.vectorized_layers(mesh, lambda xs: [mtf.layers.dense(xs[0], hidden)], inputs, [stage], stage)
      >>> isinstance(both, mtf.VectorizedLayers), [spec.full_name for spec in both.specs]
      (True, ['layer/dense/kernel', 'layer/dense/bias'])
    """

    fn: ManyLayersFn
    along: Dimension
    mesh: Mesh
    scope: LayerScope
    specs: tuple[VariableSpec, ...]
    weights: tuple[Tensor, ...]

    def __call__(
        self,
        inputs: Sequence[Tensor],
        weights: Sequence[Tensor],
        numbers: Tensor,
        microbatches: Tensor | None = None,
        microbatched: Dimension | None = None,
        also_microbatched: Sequence[str] = (),
    ) -> list[Tensor]:
        """Computes one layer for each element of `along`.

        Args:
          inputs: the layers' inputs. An input that differs between the layers has `along`.
          weights: parts of `self.weights`, [along, ...].
          numbers: int32 [along]: the number of each layer, in row-major order of the variables' layer dimensions.
          microbatches: int32 [along]: the micro-batch of each layer. Random bits are then the whole batch's.
          microbatched: the name of the dimension that is divided, and the number of micro-batches as its size. Inputs
            have every size-th element.
          also_microbatched: names of dimensions that the layer makes from that one, in the same order of elements.

        Raises:
          GraphError: the layer makes different variables than in the rehearsal, has side effects, or mixes layers.
        """
        own = dict(zip((spec.full_name for spec in self.specs), weights, strict=True))
        cut = None if microbatched is None else _cut(inputs, microbatched, also_microbatched)
        vectorization = Vectorization(self.along, numbers, cut, microbatches)
        with inside_layers(
            self.mesh, dataclasses.replace(self.scope, vectorization=vectorization), GivenVariables(self.scope, own)
        ):
            before = len(self.mesh.graph.operations)
            outputs = as_tensors(self.fn(list(inputs)), "a layer of mtf.vectorized_layers")
            # The layers are one computation. An operation that drops `along` would silently mix layers.
            for operation in with_nested(self.mesh.graph.operations[before:]):
                _check_keeps_layers_apart(operation, self.along)
        return outputs


@takes_mesh
def vectorized_layers(
    mesh: Mesh,
    fn: ManyLayersFn,
    inputs: Sequence[tuple[Shape, tf.DType]],
    dims: Sequence[Dimension],
    along: Dimension,
    name: str = "layer",
) -> VectorizedLayers:
    """Makes layers, each with its own variables, of which several are computed at once. Pipelines use them.

    Args:
      mesh: the mesh of the layers.
      fn: `fn(inputs) -> outputs`, for one layer. It is called once here, in a rehearsal that only finds which variables
        it makes, and again whenever the result is called.
      inputs: the shape and dtype of each input, with `along`.
      dims: the variables' dimensions that count the layers, in row-major order. In files each layer has its own name,
        `<scope>/<name>_000/...` and so on, as with `mtf.layer_stack`.
      along: one of `dims`, or a smaller dimension of the same name, if fewer layers are computed at once.
      name: the name of the layers' scope.

    Raises:
      ShapeError: no dimension of `dims` has the name of `along`.
      GraphError: the layers are inside other vectorized layers, or `fn` makes one variable in two ways.

    Examples:
      >>> stage, hidden = mtf.Dimension("stage", 2), mtf.Dimension("hidden", 8)
      >>> inputs = [(mtf.Shape([stage, ("batch", 4), hidden]), tf.float32)]
      >>> both = mtf.vectorized_layers(mesh, lambda xs: [mtf.layers.dense(xs[0], hidden)], inputs, [stage], stage)
      >>> y = mtf.broadcast(x, inputs[0][0])
      >>> both([y], both.weights, mtf.range(mesh, stage))
      [layer/dense/add [stage:2 batch:4 hidden:8] float32]
      >>> [w.shape for w in both.weights]
      [Shape[stage:2 _hidden:8 hidden:8], Shape[stage:2 hidden:8]]
    """
    graph = check_mesh(mesh).graph
    if along.name not in [d.name for d in dims]:
        raise ShapeError(f'dimension "{along}" does not count layers; these do: [{Shape(dims)}]')
    if vectorization_of(graph.layer_scopes):
        raise GraphError("the layers of a pipeline cannot hold another pipeline")
    total = Dimension(f"({name})", math.prod(d.size for d in dims))
    scope = LayerScope(graph.scoped(name), total, stacked=tuple(dims))
    rehearsal = RehearsedVariables(mesh, scope, [along])
    # The variables must exist before the layers are called. The rehearsal finds which ones the layers make.
    with graph.rehearsal():
        numbers = stand_in(mesh, Shape([along]), tf.int32)
        layers = VectorizedLayers(fn, along, mesh, scope, (), ())
        with inside_layers(mesh, dataclasses.replace(scope, vectorization=Vectorization(along, numbers)), rehearsal):
            fn([stand_in(mesh, shape, dtype) for shape, dtype in inputs])
    specs = tuple(rehearsal.specs.values())
    weights = tuple(make_variable(mesh, _stacked(spec, scope)) for spec in specs)
    return dataclasses.replace(layers, specs=specs, weights=weights)


def _cut(inputs: Sequence[Tensor], microbatched: Dimension, also: Sequence[str]) -> BatchCut:
    name = microbatched.name
    (size,) = {x.shape.get_dim_by_name(name).size for x in inputs if x.shape.has(name)}
    return BatchCut((name, *also), size, microbatched.size)


def _check_keeps_layers_apart(operation: Operation, along: Dimension) -> None:
    if operation.has_side_effect and not operation.blocks:
        raise GraphError(
            f"{operation.name}, made at {operation.site}, is inside layers that are computed together, even while "
            f"some of them wait, and would print, check or assign for all of them; do it outside, with their results"
        )
    has_it = [x for x in operation.inputs if x.shape.has(along.name)]
    if has_it and not operation.blocks and not all(y.shape.has(along.name) for y in operation.outputs):
        raise GraphError(
            f'{operation.name} [{operation.outputs[0].shape}], made at {operation.site}, loses dimension "{along}" of '
            f"{has_it[0]}, along which tensors belong to different layers: give it to the other operands, or put it "
            f"into the output's shape"
        )


def _stacked(spec: VariableSpec, scope: LayerScope) -> VariableSpec:
    """The stacked variable of all layers, from the variable of one layer."""
    scopes = tuple(scope if own.vectorization is not None else own for own in spec.layer_scopes)
    shape, unpadded = (Shape([*scope.stacked, *s]) for s in (spec.shape, spec.unpadded_shape))
    return dataclasses.replace(spec, shape=shape, unpadded_shape=unpadded, layer_scopes=scopes)
