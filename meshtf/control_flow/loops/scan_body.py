"""The body of a scan: one loop or, to keep fewer values for the gradient, loops inside a loop.

With "nested" recomputation, 12 layers become a loop over 3 segments of 4 layers each. The forward pass keeps the 3
values that enter the segments. The gradient reruns one segment at a time, and keeps the inputs of its 4 layers. These
are 7 values at once instead of 12. For n layers this is about 2 sqrt(n) (Chen et al. 2016).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from meshtf.control_flow._blocks import as_tensors, block_input, build_block
from meshtf.control_flow.loops.loop import LoopOperation
from meshtf.control_flow.loops.loop_spec import (
    EACH_BY_ITSELF,
    CarriedTensor,
    Iterations,
    LoopSpec,
    Numbering,
    SlicedTensor,
    StackedTensor,
)
from meshtf.control_flow.notes import NotesOfBlock
from meshtf.control_flow.recompute_policy import RecomputePolicy
from meshtf.dimension import Dimension, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.rearranging.reshape import replace_dimensions
from meshtf.planning.pipeline_note import PipelineNote


@dataclasses.dataclass(frozen=True)
class ScanBody:
    """A function to repeat, and how to repeat it. The attributes are those of `scan` and `LoopSpec`."""

    fn: Callable[..., Any]
    dim: Dimension
    policy: RecomputePolicy
    name: str
    is_reversed: bool = False
    numbering: Numbering = EACH_BY_ITSELF
    pipeline: PipelineNote | None = None

    def scanned(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The carried values after the last iteration, and the results of all iterations."""
        segments = square_root_segments(self.dim) if self.policy.nested else None
        notes = NotesOfBlock((initial or wholes)[0].graph)
        body = dataclasses.replace(self, fn=_behind_results(notes.collected(self.fn)))
        loops = body.loop(initial, wholes) if segments is None else body.nested_loops(initial, wholes, *segments)
        return loops[0], notes.handed_on(loops[1])

    def loop(self, initial: list[Tensor], wholes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        parts = [block_input(x, "part", _without(x, self.dim)) for x in wholes]
        entering = [block_input(x, "carried") for x in initial]
        like = (initial or wholes)[0]
        what = f"the body of mtf.scan over {self.dim}"
        one = functools.partial(called, self.fn, self.dim)
        operations, (leaving, results) = build_block(like.mesh, one, [entering, parts], what, entering + parts)
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
        """Makes a loop over segments. Each segment is a loop that the gradient reruns."""
        inner = dataclasses.replace(
            self,
            dim=segment,
            policy=dataclasses.replace(self.policy, nested=False),
            numbering=dataclasses.replace(self.numbering, is_segment=True),
        )
        # Memory holds one value per segment and the values of one segment: 2 * sqrt(n) values instead of n.
        outer = dataclasses.replace(self, fn=inner.loop, dim=segments, policy=RecomputePolicy("nothing"))
        cut = [replace_dimensions(x, [self.dim], [segments, segment]) for x in wholes]
        carried, results = outer.loop(initial, cut)
        return carried, [replace_dimensions(y, [segments, segment], [self.dim]) for y in results]


def called(
    fn: Callable[..., Any], dim: Dimension, entering: Sequence[Tensor], parts: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Calls the function of a scan, or of a layer, for one element of `dim`. Returns its carried values, in the order
    of dimensions in which they entered, and its results.

    Raises:
      ShapeError: it does not return two lists, or a result has `dim`.
      GraphError: it returns something other than tensors.
    """
    what = function_name(fn)
    returned = fn(list(entering), list(parts))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ShapeError(f"{what} must return (carried, results), two lists of tensors")
    carried, results = (as_tensors(r, what) for r in returned)
    for result in results:
        if result.shape.has(dim.name):
            raise ShapeError(f'a result of {what} has dimension "{dim.name}" itself: [{result.shape}]')
    ordered = [_ordered(x, e.shape) for x, e in zip(carried, entering, strict=False)]
    return ordered + carried[len(entering) :], results


def _behind_results(with_notes: Callable[..., tuple[Any, list[Tensor]]]) -> Callable[..., Any]:
    """Wraps the function of a scan to return its notes as additional results of each iteration."""

    @functools.wraps(with_notes)
    def fn(*arguments: Any) -> Any:
        returned, notes = with_notes(*arguments)
        return (returned[0], [*returned[1], *notes]) if notes else returned

    return fn


def square_root_segments(dim: Dimension) -> tuple[Dimension, Dimension] | None:
    """Factors a dimension into two of sizes as close as possible; None for a prime size."""
    outer = max((n for n in range(2, math.isqrt(dim.size) + 1) if dim.size % n == 0), default=None)
    if outer is None:
        return None
    # The names have parentheses, so that no layout rule splits these dimensions.
    return Dimension(f"({dim.name}-segments)", outer), Dimension(f"({dim.name})", dim.size // outer)


def checked_carried(entering: Sequence[Tensor], leaving: Sequence[Tensor], fn: Callable[..., Any]) -> list[Tensor]:
    """Checks that values leave an iteration with the shapes and dtypes with which they entered, and returns them."""
    name = function_name(fn)
    if len(entering) != len(leaving):
        raise ShapeError(f"{name} is given {len(entering)} carried values and returned {len(leaving)}")
    for before, after in zip(entering, leaving, strict=True):
        if before.shape != after.shape:
            raise ShapeError(
                f"{name} changes the shape of a carried value: [{before.shape}] becomes [{after.shape}]; a value "
                f"carried round a loop keeps its shape"
            )
        if before.dtype != after.dtype:
            raise DtypeError(
                f"{name} changes the dtype of a carried value [{before.shape}]: {before.dtype.name} becomes "
                f"{after.dtype.name}; convert with mtf.cast"
            )
    return list(leaving)


def _ordered(x: Tensor, shape: Shape) -> Tensor:
    return transpose(x, shape) if {*x.shape} == {*shape} else x


def _without(x: Tensor, dim: Dimension) -> Shape:
    axis = x.shape.axis(dim)
    return Shape([d for i, d in enumerate(x.shape) if i != axis])


def function_name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", "the function").strip("<>")
