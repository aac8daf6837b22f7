"""Scan: applies one block to every element of a dimension, and differentiates through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshtf.call_sites import language_function
from meshtf.control_flow.loops.loop_spec import Counted, Numbering
from meshtf.control_flow.loops.pipeline_steps import PipelineSteps
from meshtf.control_flow.loops.scan_body import ScanBody
from meshtf.control_flow.recompute_policy import RecomputePolicy, layers_policy
from meshtf.dimension import DimensionLike, convert_to_dimension
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.tensor import Tensor, check_tensors
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
      fn: `fn(carried, parts) -> (carried, results)`, each a list of tensors. The carried values keep their shapes and
        dtypes. `parts` are the slices of `sliced` at one element, without `dim`. `results` are any number of tensors
        for the element. `fn` is called once. It may use variables and outer tensors.
      carried: the initial values.
      sliced: tensors that have `dim`, such as stacked weights or a sequence of inputs. May be empty.
      dim: the dimension to scan over, or a pipeline's steps, which the report then shows.
      reverse: whether to scan from the last element to the first.
      recompute: what the gradient keeps of each iteration: "everything" (the default), "products", "nothing" (True),
        "nested" (nothing but the values carried into every sqrt(n)-th of n iterations), or a `RecomputePolicy`.
      draws_alike: whether random operations draw the same bits for every element, or different bits for each.
      name: the operation's name.

    Returns:
      The values carried after the last element, and the results of all elements, each over [dim, ...].

    Raises:
      ShapeError: a sliced tensor lacks `dim`, or a carried value changes its shape.
      DtypeError: a carried value changes its dtype.
      GraphError: a pipeline's steps are inconsistent, or `recompute` is "nested", which would divide them.

    Examples:
      >>> def running_sum(carried, parts):
      ...     total = carried[0] + parts[0]
      ...     return [total], [total]
      >>> numbers = mtf.constant(mesh, [1.0, 2.0, 3.0], "time:3")
      >>> (last,), (sums,) = mtf.scan(running_sum, mtf.zeros(mesh, []), numbers, "time")
      >>> value(last), value(sums)
      (np.float32(6.0), array([1., 3., 6.], dtype=float32))
    """
    initial, wholes = check_tensors(carried), check_tensors(sliced)
    if not callable(fn):
        raise GraphError(f"fn must be a function of the carried values and the parts of one element, not {fn!r}")
    along = dim.dim if isinstance(dim, PipelineSteps) else dim
    dimension = convert_to_dimension(along, [x.shape for x in wholes])
    if dimension is None:
        raise ShapeError("scan needs the dimension to go along")
    if not (initial or wholes):
        raise ShapeError("scan needs at least one carried or sliced tensor, and was given none of either")
    for x in wholes:
        x.shape.axis(dimension)
    policy = layers_policy((initial or wholes)[0].graph, recompute)
    note = _note(dim, initial, policy) if isinstance(dim, PipelineSteps) else None
    counted = Counted.NOTHING if draws_alike else Counted.ITERATIONS
    body = ScanBody(fn, dimension, policy, name, is_reversed=reverse, numbering=Numbering(counted), pipeline=note)
    return body.scanned(initial, wholes)


def _note(steps: PipelineSteps, carried: Sequence[Tensor], policy: RecomputePolicy) -> PipelineNote:
    if policy.nested:
        raise GraphError(
            'recompute="nested" would cut the steps of a pipeline into segments; "nothing" keeps only what enters each'
        )
    return steps.note(carried)
