"""`vmap`: maps a function of one element over a dimension, computing all elements at once.

The function is called once, with tensors that lack the dimension. Its operations are then made again with the
dimension. So the function sees the shapes of one element, and a sum over all its dimensions is a sum for each element.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

from meshtf.call_sites import language_function, says_where
from meshtf.control_flow._blocks import block_input
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.errors import GraphError, ShapeError, nearest
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.transpose_and_broadcast import broadcast, transpose

P = ParamSpec("P")
T = TypeVar("T")

_UNKNOWN = """\
operation {operation.name} ({kind}) of the function of mtf.vmap, made at {operation.site}, cannot be mapped over
"{dim}"; do it outside, or write it for all elements at once, with the dimension in its shapes"""

_HAS_IT = """\
{tensor}, made at {tensor.operation.site}, has dimension "{dim}", over which mtf.vmap maps: the function is given
tensors without it. Give a tensor from outside as an argument, or rename the dimension of the function's own"""


@language_function
def vmap(fn: Callable[P, T], dim: DimensionLike) -> Callable[P, T]:
    """Maps a function of one element over a dimension. All elements are computed at once.

    The function sees tensors without the dimension, also in `x.shape`. It is called once, and its operations are made
    with the dimension in front, split by the layout rules. Arguments without the dimension, variables, and outer
    tensors are the same for all elements. Each element has different random numbers.

    Args:
      fn: a function of tensors, or of structures of them. It returns any structure of tensors.
      dim: the dimension, or its name.

    Returns:
      A function of the same arguments. Each result has the dimension in front.

    Raises:
      ShapeError: when called, if no argument has the dimension, or two have it in different sizes.
      GraphError: when called, if `fn` uses an operation that cannot be mapped, or an outer tensor that has the
        dimension. Loops, branches, recomputation, custom gradients and assignments cannot be mapped. Neither can
        prints, convolutions, grouped products, functions of slices and `with_layout`.

    Examples:
      >>> def normalized(row):  # [hidden]
      ...     return row / mtf.reduce_sum(row)
      >>> mtf.vmap(normalized, "batch")(x).shape
      Shape[batch:4 hidden:8]
    """
    if not callable(fn):
        raise GraphError(f"mtf.vmap takes a function of mtf.Tensors, not {type(fn).__name__}")
    named = dim if isinstance(dim, str) and ":" not in dim else convert_to_dimension(dim)
    if named is None:
        raise ShapeError("mtf.vmap needs the dimension over which it maps, or its name")
    name = named if isinstance(named, str) else named.name

    @says_where
    @functools.wraps(fn)
    def over_all(*args: P.args, **kwargs: P.kwargs) -> T:
        given = (args, kwargs)
        tensors = [x for x in tf.nest.flatten(given) if isinstance(x, Tensor)]
        own = _mapped_dimension(name, tensors)
        if isinstance(named, Dimension) and named != own:
            raise ShapeError(f"mtf.vmap was to map over [{named}], and {tensors[0]} has [{own}]")
        return _mapped_results(fn, own, given)

    return over_all


def _mapped_dimension(name: str, tensors: Sequence[Tensor]) -> Dimension:
    found = [(x.shape.get_dim_by_name(name), x) for x in tensors if x.shape.has(name)]
    if not found:
        known = {d for x in tensors for d in x.shape.dimension_names}
        shown = ", ".join(map(str, tensors)) or "no tensors"
        raise ShapeError(f'no argument has dimension "{name}", over which to map: {shown}{nearest(name, known)}')
    for dim, x in found:
        if dim != found[0][0]:
            raise ShapeError(f'dimension "{name}" has size {found[0][0].size} in {found[0][1]} and {dim.size} in {x}')
    return found[0][0]


def _mapped_results(fn: Callable[..., Any], dim: Dimension, given: tuple[tuple[Any, ...], Mapping[str, Any]]) -> Any:
    leaves = tf.nest.flatten(given)
    elements = {x: _element(x, dim) for x in leaves if isinstance(x, Tensor) and x.shape.has(dim.name)}
    args, kwargs = tf.nest.pack_sequence_as(given, [elements.get(x, x) if isinstance(x, Tensor) else x for x in leaves])
    graph = next(iter(elements)).graph
    with graph.capture("the function of mtf.vmap", elements.values()) as operations:
        results = fn(*args, **kwargs)
    made = _Elements(dim, {inside: _in_front(x, dim) for x, inside in elements.items()})
    for operation in operations:
        made.make_again(operation)
    return tf.nest.map_structure(lambda x: made.of_all(x) if isinstance(x, Tensor) else x, results)


def _element(x: Tensor, dim: Dimension) -> Tensor:
    return block_input(x, x.name, x.shape - [dim])


def _in_front(x: Tensor, dim: Dimension) -> Tensor:
    wanted = Shape([dim, *(x.shape - [dim])])
    return x if x.shape == wanted else transpose(x, wanted)


class _Elements:
    """The operations of the function of one element, made again for all elements.

    `_all` maps a tensor of one element to the tensor of all elements. Tensors that it lacks are the same for all.
    """

    def __init__(self, dim: Dimension, given: Mapping[Tensor, Tensor]) -> None:
        self._dim = dim
        self._all = dict(given)

    def of_all(self, x: Tensor) -> Tensor:
        """A tensor of all elements, from a tensor of one."""
        return self._all[x] if x in self._all else broadcast(x, self._shape(x.shape))

    def make_again(self, operation: Operation) -> None:
        """Makes an operation for all elements, or keeps the operation if it is the same for all.

        Raises:
          GraphError: the operation cannot be mapped.
        """
        for tensor in (*operation.inputs, *operation.outputs):
            if tensor.shape.has(self._dim.name):
                raise GraphError(_HAS_IT.format(tensor=tensor, dim=self._dim.name))
        is_mapped = operation.mapped == "always" or any(x in self._all for x in _all_inputs(operation))
        if not is_mapped and not operation.has_side_effect:
            operation.graph.adopt(operation)
        elif self._can_make_again(operation):
            self._replace(operation, self._again(operation))
        else:
            raise GraphError(_UNKNOWN.format(operation=operation, kind=type(operation).__name__, dim=self._dim.name))

    def _can_make_again(self, operation: Operation) -> bool:
        if operation.mapped == "first input" and any(x in self._all for x in operation.inputs[1:]):
            return False
        return operation.mapped != "" and not self._is_used_by_gradient(operation)

    def _is_used_by_gradient(self, operation: Operation) -> bool:
        """Whether the gradient uses a tensor of one element that is not an input, and so would not be replaced."""
        functions = [f for f in operation.made_with[1].values() if inspect.isfunction(f)]
        used = [cell.cell_contents for f in functions for cell in f.__closure__ or ()]
        return any(isinstance(x, Tensor) and x in self._all for x in used)

    def _shape(self, element: Shape) -> Shape:
        return Shape([self._dim, *element])

    def _again(self, operation: Operation) -> Operation:
        own = {x: self.of_all(x) for x in operation.inputs} if operation.mapped == "all inputs" else self._all

        def argument(value: Any) -> Any:
            if isinstance(value, Tensor):
                return own.get(value, value)
            if isinstance(value, Shape):
                return self._shape(value)
            return type(value)(map(argument, value)) if type(value) in (list, tuple) else value

        args, kwargs = operation.made_with
        again = {name: argument(value) for name, value in kwargs.items()}
        if isinstance(operation, ElementwiseOperation):  # its default order of dimensions may differ
            again["output_shape"] = self._shape(operation.outputs[0].shape)
        return type(operation)(*map(argument, args), **again)

    def _replace(self, operation: Operation, again: Operation) -> None:
        """Replaces an operation of one element by the operation of all elements, with the same name and line."""
        again.name, again.site, again.scoped_name = operation.name, operation.site, operation.scoped_name
        for before, after in zip(operation.outputs, again.outputs, strict=True):
            wanted = self._shape(before.shape)
            assert (after.dtype, {*after.shape}) == (before.dtype, {*wanted}), f"{after} is not [{wanted}]"
            self._all[before] = transpose(after, wanted) if after.shape != wanted else after


def _all_inputs(operation: Operation) -> list[Tensor]:
    """The tensors that an operation and its blocks use."""
    return [*operation.inputs, *(x for block in operation.blocks for x in block.captures)]
