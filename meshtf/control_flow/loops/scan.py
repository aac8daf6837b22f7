"""Scan: one block for every element of a dimension, forward and backward."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from meshtf.call_sites import language_function
from meshtf.control_flow.blocks import as_tensors, block_input, build
from meshtf.control_flow.loops.loop import LoopOperation
from meshtf.control_flow.loops.loop_spec import (
    EACH_BY_ITSELF,
    CarriedTensor,
    Counted,
    Iterations,
    LoopSpec,
    Numbering,
    SlicedTensor,
    StackedTensor,
)
from meshtf.control_flow.loops.pipeline_steps import PipelineSteps
from meshtf.control_flow.recompute_policy import RecomputePolicy, as_policy
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.graph import Tensor, check_tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.rearranging.reshape import replace_dimensions
from meshtf.planning.pipeline_note import PipelineNote


@language_function
def scan(
    fn: Callable[..., Any],
    carried: Tensor | Sequence[Tensor],
    sliced: Tensor | Sequence[Tensor],
    dim: DimensionLike | PipelineSteps,
    *,
    reverse: bool = False,
    recompute: RecomputePolicy | str | bool | None = None,
    draws_alike: bool = False,
    name: str = "scan",
) -> tuple[list[Tensor], list[Tensor]]:
    """Applies `fn` along a dimension, passing values from one element to the next.

    Args:
      fn: `fn(carried, parts) -> (carried, results)`, each a list of tensors: the values carried, of unchanged shapes
        and dtypes; the parts of `sliced` at one element, without `dim`; results for the element, any number of them.
        It is called once. Variables and tensors from outside may be used inside.
      carried: initial values.
      sliced: tensors that have `dim`: stacked weights, inputs step by step. May be empty.
      dim: the dimension to go along, or a pipeline's steps: the report then has the pipeline.
      reverse: from the last element to the first.
      recompute: what the gradient keeps of each iteration: "everything" (the default), "products", "nothing" (True),
        "nested" (nothing but the values carried into every sqrt(n)-th of n iterations), or a `RecomputePolicy`.
      draws_alike: whether random operations draw the same bits for every element, rather than others for each.
      name: of the operation.

    Returns:
      The values carried after the last element, and the results of all elements, each over [dim, ...].

    Raises:
      ShapeError: a sliced tensor lacks `dim`, or a carried value changes its shape.
      DtypeError: a carried value changes its dtype.
      GraphError: a pipeline's steps contradict each other, or are to be cut into segments ("nested").

    Examples:
      >>> def running_sum(carried, parts):
      ...     total = carried[0] + parts[0]
      ...     return [total], [total]
      >>> numbers = mtf.constant(mesh, [1.0, 2.0, 3.0], "time:3")
      >>> (last,), (sums,) = mtf.scan(running_sum, mtf.zeros(mesh, []), numbers, ("time", 3))
      >>> value(last), value(sums)
      (np.float32(6.0), array([1., 3., 6.], dtype=float32))
    """
    dimension = convert_to_dimension(dim.dim if isinstance(dim, PipelineSteps) else dim)
    if dimension is None:
        raise ShapeError("scan needs the dimension to go along")
    initial, wholes = listed(carried), listed(sliced)
    if not (initial or wholes):
        raise ShapeError("scan needs at least one carried or sliced tensor, and was given none of either")
    for x in wholes:
        x.shape.axis(dimension)
    policy = as_policy(recompute)
    note = _note(dim, initial, policy) if isinstance(dim, PipelineSteps) else None
    counted = Counted.NOTHING if draws_alike else Counted.ITERATIONS
    body = ScanBody(fn, dimension, policy, name, reverse, Numbering(counted), note)
    return body.scanned(initial, wholes)


def _note(steps: PipelineSteps, carried: Sequence[Tensor], policy: RecomputePolicy) -> PipelineNote:
    if policy.nested:
        raise GraphError(
            'recompute="nested" would cut the steps of a pipeline into segments; "nothing" keeps only what enters each'
        )
    return steps.note(carried)


@dataclasses.dataclass(frozen=True)
class ScanBody:
    """What a scan repeats, and how. The attributes are those of `scan` and of `LoopSpec`."""

    fn: Callable[..., Any]
    dim: Dimension
    policy: RecomputePolicy
    name: str
    is_reversed: bool = False
    numbering: Numbering = EACH_BY_ITSELF
    pipeline: PipelineNote | None = None

    def scanned(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The values carried in the end, and the results of all iterations."""
        segments = segments_of(self.dim) if self.policy.nested else None
        return self.loop(initial, wholes) if segments is None else self.nested_loops(initial, wholes, *segments)

    def loop(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        parts = [block_input(x, "part", _without(x, self.dim)) for x in wholes]
        entering = [block_input(x, "carried") for x in initial]
        like = (initial or wholes)[0]
        what = f"the body of mtf.scan over {self.dim}"
        operations, (leaving, results) = build(like.mesh, self._called, [entering, parts], what, entering + parts)
        self.policy.check(operations)
        spec = LoopSpec(
            iterations=Iterations(self.dim, self.is_reversed),
            operations=operations,
            carried=tuple(map(CarriedTensor, initial, entering, checked_carried(entering, leaving, self.fn))),
            sliced=tuple(map(SlicedTensor, wholes, parts)),
            stacked=tuple(StackedTensor(t, self.dim) for t in results),
            numbering=self.numbering,
            policy=self.policy,
            pipeline=self.pipeline,
        )
        loop = LoopOperation(spec, like, self.name)
        return list(loop.carried_outputs), list(loop.stacked_outputs)

    def nested_loops(
        self, initial: list[Tensor], wholes: list[Tensor], segments: Dimension, segment: Dimension
    ) -> tuple[list[Tensor], list[Tensor]]:
        """A loop over segments, each a loop that the gradient runs again: of n elements 2 sqrt(n) are kept at most."""
        inner = dataclasses.replace(
            self,
            dim=segment,
            policy=dataclasses.replace(self.policy, nested=False),
            numbering=dataclasses.replace(self.numbering, is_segment=True),
        )
        outer = dataclasses.replace(self, fn=inner.loop, dim=segments, policy=RecomputePolicy("nothing"))
        cut = [replace_dimensions(x, [self.dim], [segments, segment]) for x in wholes]
        carried, results = outer.loop(initial, cut)
        return carried, [replace_dimensions(y, [segments, segment], [self.dim]) for y in results]

    def _called(self, entering: list[Tensor], parts: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        what = _name(self.fn)
        returned = self.fn(list(entering), list(parts))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ShapeError(f"{what} must return (carried, results), two lists of tensors")
        carried, results = (as_tensors(r, what) for r in returned)
        for result in results:
            if result.shape.has(self.dim.name):
                raise ShapeError(f'a result of {what} has dimension "{self.dim.name}" itself: [{result.shape}]')
        ordered = [_ordered(x, e.shape) for x, e in zip(carried, entering, strict=False)]
        return ordered + carried[len(entering) :], results


def segments_of(dim: Dimension) -> tuple[Dimension, Dimension] | None:
    """The two dimensions nearest to square of which a dimension is made, or None of a prime."""
    outer = max((n for n in range(2, math.isqrt(dim.size) + 1) if dim.size % n == 0), default=None)
    if outer is None:
        return None
    # No layout rule names these.
    return Dimension(f"({dim.name}-segments)", outer), Dimension(f"({dim.name})", dim.size // outer)


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


def listed(x: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [check_tensor(t) for t in ([x] if isinstance(x, Tensor) else x)]


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", "the function").strip("<>")
