"""Scan: one block for every element of a dimension, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshtf.control_flow.blocks import as_tensors, block_input, build
from meshtf.control_flow.loop import LoopOperation, LoopSpec
from meshtf.control_flow.recomputation import RecomputePolicy, as_policy
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph import Tensor, check_tensor
from meshtf.ops.einsum import transpose
from meshtf.sites import language_function


@language_function
def scan(
    fn: Callable[..., Any],
    carried: Tensor | Sequence[Tensor],
    sliced: Tensor | Sequence[Tensor],
    dim: DimensionLike,
    *,
    reverse: bool = False,
    recompute: RecomputePolicy | str | bool | None = None,
    name: str = "scan",
) -> tuple[list[Tensor], list[Tensor]]:
    """Applies `fn` along a dimension, passing values from one element to the next.

    Args:
      fn: `fn(carried, parts) -> (carried, results)`, each a list of tensors: the values carried, of unchanged shapes
        and dtypes; the parts of `sliced` at one element, without `dim`; results for the element, any number of them.
        It is called once. Variables and tensors from outside may be used inside.
      carried: initial values.
      sliced: tensors that have `dim`: stacked weights, inputs step by step. May be empty.
      dim: the dimension to go along.
      reverse: from the last element to the first.
      recompute: what the gradient keeps of each iteration: "everything" (the default), "products", "nothing" (True), or
        a `RecomputePolicy`.
      name: of the operation.

    Returns:
      The values carried after the last element, and the results of all elements, each over [dim, ...].

    Raises:
      ShapeError: a sliced tensor lacks `dim`, or a carried value changes its shape.
      DtypeError: a carried value changes its dtype.
    """
    dimension = convert_to_dimension(dim)
    if dimension is None:
        raise ShapeError("scan needs the dimension to go along")
    initial, wholes = _listed(carried), _listed(sliced)
    parts = [block_input(x, "part", _without(x, dimension)) for x in wholes]
    entering = [block_input(x, "carried") for x in initial]
    like = (initial or wholes or [None])[0]
    if like is None:
        raise ShapeError("scan needs at least one carried or sliced tensor, and was given none of either")
    policy = as_policy(recompute)
    what = f"the body of mtf.scan over {dimension}"
    operations, (leaving, results) = build(like.mesh, lambda: _called(fn, entering, parts), [], what, entering + parts)
    policy.check(operations)
    spec = LoopSpec(
        dim=dimension,
        carried=tuple(zip(initial, entering, checked_carried(entering, leaving, fn), strict=True)),
        sliced=tuple(zip(wholes, parts, strict=True)),
        stacked=tuple((t, dimension) for t in results),
        accumulated=(),
        operations=operations,
        is_reversed=reverse,
        policy=policy,
    )
    for result in results:
        if result.shape.has(dimension.name):
            raise ShapeError(f'a result of {_name(fn)} has dimension "{dimension.name}" itself: [{result.shape}]')
    loop = LoopOperation(spec, like, name)
    return list(loop.carried_outputs), list(loop.stacked_outputs)


def _called(fn: Callable[..., Any], entering: list[Tensor], parts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    returned = fn(list(entering), list(parts))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ShapeError(f"{_name(fn)} must return (carried, results), two lists of tensors")
    carried, results = (as_tensors(r, _name(fn)) for r in returned)
    return [_ordered(x, e.shape) for x, e in zip(carried, entering, strict=False)] + carried[len(entering) :], results


def checked_carried(entering: Sequence[Tensor], leaving: Sequence[Tensor], fn: Callable[..., Any]) -> list[Tensor]:
    """The values that leave an iteration; they must be as those that entered it."""
    if len(entering) != len(leaving):
        raise ShapeError(f"{_name(fn)} is given {len(entering)} carried values and returned {len(leaving)}")
    for before, after in zip(entering, leaving, strict=True):
        if before.shape != after.shape:
            raise ShapeError(
                f"{_name(fn)} changes the shape of a carried value: [{before.shape}] becomes [{after.shape}]; a value "
                f"carried round a loop keeps its shape"
            )
        if before.dtype != after.dtype:
            raise DtypeError(
                f"{_name(fn)} changes the dtype of a carried value [{before.shape}]: {before.dtype.name} becomes "
                f"{after.dtype.name}; convert with mtf.cast"
            )
    return list(leaving)


def _ordered(x: Tensor, shape: Shape) -> Tensor:
    return transpose(x, shape) if {*x.shape} == {*shape} else x


def _without(x: Tensor, dim: Dimension) -> Shape:
    axis = x.shape.axis(dim)
    return Shape([d for i, d in enumerate(x.shape) if i != axis])


def _listed(x: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [check_tensor(t) for t in ([x] if isinstance(x, Tensor) else x)]


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", "the function").strip("<>")
