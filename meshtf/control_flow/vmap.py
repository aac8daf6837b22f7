"""`vmap`: maps a function of one element over a dimension, computing all elements at once.

The function is called once, with tensors that lack the dimension. Its operations are then made again with the
dimension. So the function sees the shapes of one element, and a sum over all its dimensions is a sum for each element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

from meshtf.call_sites import language_function, says_where
from meshtf.control_flow._blocks import block_input
from meshtf.control_flow._elements import Elements
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.errors import GraphError, ShapeError, nearest
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose

P = ParamSpec("P")
T = TypeVar("T")


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
        dimension. Assignments, prints, convolutions and grouped products cannot be mapped. Neither can functions of
        slices, pipelines and `with_layout`, or a loop or a branch whose condition differs between elements.

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
    with graph.capture("the function of mtf.vmap", elements.values(), goes_on=True) as operations:
        results = fn(*args, **kwargs)
    made = Elements(dim, {inside: _in_front(x, dim) for x, inside in elements.items()})
    for operation in operations:
        made.make_again(operation)
    return tf.nest.map_structure(lambda x: made.of_all(x) if isinstance(x, Tensor) else x, results)


def _element(x: Tensor, dim: Dimension) -> Tensor:
    return block_input(x, x.name, x.shape - [dim])


def _in_front(x: Tensor, dim: Dimension) -> Tensor:
    wanted = Shape([dim, *(x.shape - [dim])])
    return x if x.shape == wanted else transpose(x, wanted)
