"""Finds changes that would make a program fit into a core's memory, by planning the program with them."""

from __future__ import annotations

import collections
import itertools

from meshtf.lowering.ahead.changes import Change, PlanWith
from meshtf.lowering.report.accounting import stored_variables
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
from meshtf.lowering.report.memory.what_fits import AS_FUSED, fitting_batch
from meshtf.planning.plan import Plan

_GIB = 2**30
_MOST_LAYOUTS = 3
_KEPT_BY_LAYERS = ("costly", "products", "nothing")
"""The recomputation policies of layers, from the least recomputation to the most."""

_FITTING = """\
By the plan these would fit: {fitting}.
Otherwise, a larger topology, a smaller batch, micro-batches or recomputation (mtf.recompute_grad) need less."""

_NOTHING_FITS = """\
A larger topology, a layout that splits more, a smaller batch, micro-batches or recomputation (mtf.recompute_grad) \
need less."""

_CLOSEST = """\
By the plan it would not fit with {change} either, but would need {needed}.
"""


def advice(plan: Plan, activations: int, available: int, plan_with: PlanWith) -> str:
    """The changes that let a program fit into the available memory, each with the memory that it would need then.

    It tries layouts of variables, then layers that keep less for the gradient, and both together if neither alone fits.
    Smaller batches are estimated from the plan.

    Args:
      plan: the program's plan.
      activations: the bytes of activations; each micro-batch would take a part of them.
      available: the bytes of memory of a core.
      plan_with: plans the program with a change.
    """
    peak, needed = compiled_peak_memory(plan).total, _Needed(plan_with)
    layouts = [Change(parameter_layout=layout) for layout in _layouts_to_try(plan)]
    fitting = [change for change in layouts if needed[change] <= available]
    recomputing = [Change(layers_keep=keep) for keep in _KEPT_BY_LAYERS]
    fitting += itertools.islice((change for change in recomputing if needed[change] <= available), 1)
    if not fitting and needed[recomputing[-1]] < peak:
        both = [Change(x.parameter_layout, recomputing[-1].layers_keep) for x in layouts]
        fitting = [change for change in both if needed[change] <= available]
    words = [f"{change} ({_gib(needed[change])})" for change in fitting]
    batch = fitting_batch(plan, AS_FUSED.total, available) if peak > available else None
    if batch is not None:
        words.append(f'"{batch.name}" of {batch.size:,} instead of {batch.now:,} ({_gib(batch.needed)})')
    rest = available - (peak - activations)
    if 0 < rest < activations:
        words.append(f"{-(-activations // rest)} micro-batches, if each takes its part of the activations")
    return _FITTING.format(fitting="; ".join(words)) if words else needed.closest(peak) + _NOTHING_FITS


class _Needed(dict[Change, float]):
    """The peak bytes of a core, keyed by change; infinite if there is no plan with the change."""

    def __init__(self, plan_with: PlanWith) -> None:
        self._plan_with = plan_with

    def __missing__(self, change: Change) -> float:
        plan = self._plan_with(change)
        self[change] = float("inf") if plan is None else compiled_peak_memory(plan).total
        return self[change]

    def closest(self, peak: int) -> str:
        """A sentence about the change that needs the least memory, or an empty string if it needs no less than the
        program now."""
        change = min(self, key=self.__getitem__, default=None)
        if change is None or self[change] >= peak:
            return ""
        return _CLOSEST.format(change=change, needed=_gib(self[change]))


def _layouts_to_try(plan: Plan) -> list[str]:
    """Layouts that split one dimension over all axes of the mesh, for the dimensions that occur in the most bytes of
    variables."""
    by_dimension: collections.Counter[str] = collections.Counter()
    for value in stored_variables(plan).values():
        for dim in value.shape:
            by_dimension[dim.name] += value.slice_bytes
    axes = "+".join(axis.name for axis in plan.mesh_shape if axis.size > 1)
    return [f"{name}:{axes}" for name, _ in by_dimension.most_common(_MOST_LAYOUTS)] if axes else []


def _gib(n: float) -> str:
    return f"{n / _GIB:.3g} GiB"
