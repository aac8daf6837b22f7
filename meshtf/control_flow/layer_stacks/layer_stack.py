"""A stack of layers: unrolled, or one scan over stacked weights, with the same variables and the same results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from meshtf.call_sites import language_function
from meshtf.control_flow.layer_stacks._layer_variables import (
    GivenVariables,
    RehearsedVariables,
    inside_layers,
    stand_in,
)
from meshtf.control_flow.loops.loop_spec import Counted, Numbering
from meshtf.control_flow.loops.scan_body import ScanBody, called, checked_carried, square_root_segments
from meshtf.control_flow.notes import noting
from meshtf.control_flow.recompute_grad import recompute_grad
from meshtf.control_flow.recompute_policy import KEEP_EVERYTHING, RecomputePolicy, layers_policy
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.tensor import Tensor, check_tensors
from meshtf.layer_scopes import LayerScope
from meshtf.ops.inputs.constants import zeros
from meshtf.ops.rearranging.concat_and_slice import stack, unstack
from meshtf.ops.variables.get_variable import make_variable
from meshtf.ops.variables.variable import VariableSpec

LayerFn = Callable[[list[Tensor], list[Tensor]], tuple[Sequence[Tensor], Sequence[Tensor]]]


@language_function
def layer_stack(
    fn: LayerFn,
    carried: Tensor | Sequence[Tensor],
    dim: DimensionLike,
    sliced: Tensor | Sequence[Tensor] = (),
    *,
    unroll: bool = False,
    recompute: RecomputePolicy | str | bool | None = None,
    name: str = "layer",
) -> tuple[list[Tensor], list[Tensor]]:
    """Applies a layer once for each element of a dimension, each time with different variables.

    By default this is a scan: it is built, traced and compiled once for all layers. `mtf.get_variable` then returns one
    layer's part of a stacked variable `<scope>/<name>/...`, whose first dimension is `dim`. If unrolled, each layer has
    its own variable, `<scope>/<name>_000/...`, `..._001/...` and so on. Checkpoints use these unrolled names in both
    cases. Initial values, random bits and results are the same.

    Args:
      fn: `fn(carried, parts) -> (carried, results)`, as for `mtf.scan`. A scan calls it twice. The first call only
        finds which variables it makes, and is then discarded. If unrolled, it is called once for each layer.
      carried: the first layer's inputs. Their shapes and dtypes stay the same from layer to layer.
      dim: the dimension that counts the layers.
      sliced: tensors that have `dim`; each layer receives its part.
      unroll: whether each layer has its own operations in the program.
      recompute: what the gradient keeps of each layer, as for `mtf.scan`.
      name: the name of the layers' scope.

    Returns:
      The values that the last layer carries out, and each layer's results, stacked over [dim, ...].

    Raises:
      ShapeError, DtypeError: as `mtf.scan`.
      GraphError: in a scan, `fn` makes different variables in its second call, or assigns a variable.

    Examples:
      >>> def layer(carried, parts):
      ...     return [carried[0] + mtf.layers.dense(carried[0], mtf.Dimension("hidden", 8))], []
      >>> (y,), _ = mtf.layer_stack(layer, x, ("layers", 3))
      >>> y, mesh.graph.variables["layer/dense/kernel"].shape
      (layer [batch:4 hidden:8] float32, Shape[layers:3 _hidden:8 hidden:8])
    """
    initial, wholes = check_tensors(carried), check_tensors(sliced)
    if not callable(fn):
        raise GraphError(f"fn must be a function of the carried values and the parts of one layer, not {fn!r}")
    dimension = convert_to_dimension(dim, [x.shape for x in wholes])
    if dimension is None:
        raise ShapeError("layer_stack needs the dimension that counts the layers")
    if not initial:
        raise ShapeError("layer_stack needs at least one carried value, and was given none")
    for x in wholes:
        x.shape.axis(dimension)
    layers = _Unrolled if unroll else _Scanned
    return layers(fn, dimension, layers_policy(initial[0].graph, recompute), name)(initial, wholes)


@dataclasses.dataclass(frozen=True)
class _Scanned:
    """Runs the layers as one scan."""

    fn: LayerFn
    dim: Dimension
    policy: RecomputePolicy
    name: str

    def __call__(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        mesh = initial[0].mesh
        scope = LayerScope(mesh.graph.scoped(self.name), self.dim)
        # A scan slices stacked variables. They must exist before its body is built, but only the body names them.
        variables, _ = _rehearsed(self.fn, self.dim, scope, initial, wholes)
        stacked = [make_variable(mesh, _stacked(spec, self.dim)) for spec in variables]

        def layer(entering: list[Tensor], parts: list[Tensor]) -> Any:
            own = dict(zip((spec.full_name for spec in variables), parts[len(wholes) :], strict=True))
            with inside_layers(mesh, scope, GivenVariables(scope, own)):
                return self.fn(entering, parts[: len(wholes)])

        body = ScanBody(layer, self.dim, self.policy, self.name, numbering=Numbering(Counted.LAYERS))
        return body.scanned(initial, [*wholes, *stacked])


@dataclasses.dataclass(frozen=True)
class _Unrolled:
    """Runs the layers one by one, each with its own operations."""

    fn: LayerFn
    dim: Dimension
    policy: RecomputePolicy
    name: str

    def __call__(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        if not self.dim.size:
            return initial, self._no_results(initial, wholes)
        parts = list(zip(*(unstack(x, self.dim) for x in wholes), strict=True)) or [()] * self.dim.size
        layers = [functools.partial(self._layer, number, list(own)) for number, own in enumerate(parts)]
        # The same segments as in a scan, so that both keep the same tensors.
        segments = square_root_segments(self.dim) if self.policy.nested else None
        policy = dataclasses.replace(self.policy, nested=False)
        length = segments[1].size if segments is not None else len(layers)
        carried, results = initial, []
        for start in range(0, len(layers), length):
            segment = functools.partial(_in_turn, layers[start : start + length], policy)
            carried, more = _kept(segment, RecomputePolicy("nothing"), carried) if segments else segment(carried)
            results += more
        each = len(results) // len(layers)
        by_layer = [results[start : start + each] for start in range(0, len(results), each)] if each else []
        return carried, [stack(list(own), self.dim.name) for own in zip(*by_layer, strict=True)]

    def _no_results(self, initial: list[Tensor], wholes: list[Tensor]) -> list[Tensor]:
        """The results of no layers, in the shapes that one layer's would have."""
        mesh = initial[0].mesh
        fn = functools.partial(called, self.fn, self.dim)
        _, (_, results) = _rehearsed(fn, self.dim, LayerScope(mesh.graph.scoped(self.name), self.dim), initial, wholes)
        return [zeros(mesh, Shape([self.dim, *y.shape]), y.dtype) for y in results]

    def _layer(self, number: int, parts: list[Tensor], carried: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        with carried[0].graph.layer_scope(self.name, self.dim, number):
            leaving, results = called(self.fn, self.dim, carried, parts)
            return checked_carried(carried, leaving, self.fn), results


def _rehearsed(
    fn: LayerFn, dim: Dimension, scope: LayerScope, initial: list[Tensor], wholes: list[Tensor]
) -> tuple[list[VariableSpec], Any]:
    """The variables that one layer makes, and what its function returns, from a call that is then discarded."""
    mesh = initial[0].mesh
    rehearsed = RehearsedVariables(mesh, scope)
    with mesh.graph.rehearsal(), noting(mesh.graph), inside_layers(mesh, scope, rehearsed):
        entering = [stand_in(mesh, x.shape, x.dtype) for x in initial]
        parts = [stand_in(mesh, x.shape - [dim], x.dtype) for x in wholes]
        returned = fn(entering, parts)
    return list(rehearsed.specs.values()), returned


def _in_turn(
    layers: Sequence[Callable[[list[Tensor]], tuple[list[Tensor], list[Tensor]]]],
    policy: RecomputePolicy,
    carried: list[Tensor],
) -> tuple[list[Tensor], list[Tensor]]:
    """The values that the last layer carries out, and the results of all layers, in the order of the layers."""
    results = []
    for layer in layers:
        carried, more = _kept(layer, policy, carried)
        results += more
    return carried, results


def _kept(
    fn: Callable[[list[Tensor]], tuple[list[Tensor], list[Tensor]]], policy: RecomputePolicy, carried: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """`fn(carried)`, with a gradient that keeps the tensors of the policy."""
    if policy == KEEP_EVERYTHING:
        return fn(carried)

    def flat(*xs: Tensor) -> list[Tensor]:
        leaving, results = fn(list(xs))
        return [*leaving, *results]

    outputs = recompute_grad(flat, carried, policy)
    return outputs[: len(carried)], outputs[len(carried) :]


def _stacked(spec: VariableSpec, dim: Dimension) -> VariableSpec:
    """The stacked variable of all layers, from the variable of one layer."""
    return dataclasses.replace(spec, shape=Shape([dim, *spec.shape]), unpadded_shape=Shape([dim, *spec.unpadded_shape]))
