"""Says what is largest in the memory of a program that does not fit, and what would fit, by its plan alone.

Nothing is traced again. A larger or smaller batch is estimated from the plan: values with the batch's dimension take
proportionally more or less, and all others stay as they are.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from meshtf.dimension import Dimension, Shape
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.lowering.report.accounting import stored_variables
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory, largest_at_compiled_peak
from meshtf.lowering.report.memory.peak_memory import PeakMemory, largest_at_peak, peak_memory
from meshtf.lowering.report.text_table import size_text
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Carried,
    Check,
    Collective,
    Compute,
    Condition,
    Feed,
    Finding,
    Loop,
    Plan,
    ReadVariable,
    Sliced,
    Stacked,
    Value,
    walk,
)

_WITH_VALUES = (
    *(Value, AssignVariable, Branch, Collective, Compute, Feed, Loop, ReadVariable),
    *(Carried, Check, Condition, Finding, Sliced, Stacked),
)
"""The parts of a plan that have sizes, or have other parts that do."""

_NOT_COUNTED = """\
By the plan it would fit. The plan does not count scratch memory of kernels, gaps between arrays, and inputs of steps \
that are started ahead."""

_FITS = """\
By an estimate from the plan, "{name}" of {size:,} instead of {now:,} would fit, with {needed}{each}."""

_VARIABLES = """\
The variables alone do not fit. {split}A layout or parameter_layout that splits them more, a narrower slice_dtype, or \
an optimizer with fewer slots needs less."""

_SPLIT = """\
Each counted once, {what} take {whole}: split evenly, they need at least {least:,} cores with as much left, and the \
mesh has {cores:,}. """


class MemoryCount(NamedTuple):
    """A way to count a program's memory: `peak_memory` and `largest_at_peak`, or the same for XLA's fusion on TPUs."""

    peak: Callable[[Plan], PeakMemory]
    largest: Callable[[Plan, int], list[tuple[Value, str]]]

    def total(self, plan: Plan) -> int:
        """Returns the bytes of a core at its peak."""
        return self.peak(plan).total


BY_OPERATION = MemoryCount(peak_memory, largest_at_peak)
AS_FUSED = MemoryCount(compiled_peak_memory, largest_at_compiled_peak)


def largest_texts(plan: Plan, count: MemoryCount, number: int) -> list[str]:
    """Returns texts about the largest values at the peak: bytes of a core, name, named shape with its split, dtype."""
    largest = count.largest(plan, number)
    return [f"{size_text(v.slice_bytes)} {name} [{v.layout.to_string(v.shape)}] {v.dtype.name}" for v, name in largest]


@garbage_collection_paused()
def what_fits(plan: Plan, count: MemoryCount, available: int) -> str:
    """Returns a sentence about what would fit into the available bytes of a core, by the plan.

    It is empty if the plan says nothing about that.
    """
    peak = count.peak(plan)
    if peak.total <= available:
        return _NOT_COUNTED
    if peak.variables > available:
        return _VARIABLES.format(split=_split("they", stored_variables(plan).values(), plan, available))
    batch = fitting_batch(plan, count.total, available)
    if batch is not None:
        return batch.text(" a core")
    values = [value for value, _ in count.largest(plan, len(plan.instructions))]
    return _split("the values at that point", values, plan, available).strip()


def _split(what: str, values: Iterable[Value], plan: Plan, available: int) -> str:
    whole = sum(v.shape.size * v.dtype.size for v in values)
    least = -(-whole // available) if available > 0 else 0
    if least < 2:
        return ""
    return _SPLIT.format(what=what, whole=size_text(whole), least=least, cores=plan.mesh_shape.size)


@dataclasses.dataclass(frozen=True)
class FittingBatch:
    """A batch with which a plan fits.

    name: its dimension. size, now: the sizes of this batch and of the present one. needed: the bytes with it.
    """

    name: str
    size: int
    now: int
    needed: int

    def text(self, each: str = "") -> str:
        """Returns a sentence. `each`: words behind the bytes, such as " a core"."""
        return _FITS.format(name=self.name, size=self.size, now=self.now, needed=size_text(self.needed), each=each)


def fitting_batch(plan: Plan, bytes_of: Callable[[Plan], int], available: int) -> FittingBatch | None:
    """Returns the largest batch below the present one with which the plan's bytes are available. None if none is
    known.

    The batch is the first dimension that all fed arrays have and no variable has. Its sizes are multiples of what the
    plan divides it by, for cores and micro-batches. The bytes are an estimate: values that were made of the batch under
    another name are counted in full, so a larger batch may fit too.
    """
    batch = _batch(plan)
    if batch is None:
        return None
    step = _divisor(plan, batch)
    sizes = range(step, batch.size, step)

    @functools.cache
    def needed(size: int) -> int:
        return bytes_of(resized(plan, batch, size))

    number = bisect.bisect_right(sizes, available, key=needed)
    return FittingBatch(batch.name, step * number, batch.size, needed(step * number)) if number else None


def _batch(plan: Plan) -> Dimension | None:
    inputs = (i for i in plan.feeds if isinstance(i.operation, InputOperation) and i.operation.value is None)
    fed = [i.output.shape for i in inputs if i.output.shape.ndims]
    kept = {dim.name for value in stored_variables(plan).values() for dim in value.shape}
    shared = (dim for dim in fed[0] if dim.name not in kept and all(dim in shape for shape in fed)) if fed else ()
    return next(iter(shared), None)


def _divisor(plan: Plan, batch: Dimension) -> int:
    """Returns the number of which a new size must be a multiple, so that all slices have whole sizes."""
    slices = {
        n
        for i, _ in walk(plan.instructions)
        for v in i.outputs
        for dim, n in zip(v.shape, v.slice_shape, strict=True)
        if _contains(dim, batch) and n and dim.size % n == 0
    }
    return math.lcm(*(batch.size // math.gcd(batch.size, n) for n in slices))


def _contains(dim: Dimension, batch: Dimension) -> bool:
    """Whether it is the batch, or a part of it, or combined with others, as `batch*length`."""
    return batch.name in dim.name.split("*")


def resized(plan: Plan, batch: Dimension, size: int) -> Plan:
    """Returns the plan with another size of the batch, for counting. Its local work still has the old size."""
    done: dict[Any, Any] = {}

    def scaled(dim: Dimension, n: int) -> int:
        return -(-n * size // batch.size) if _contains(dim, batch) else n

    def of_value(value: Value) -> Value:
        dims = [Dimension(dim.name, scaled(dim, dim.size)) for dim in value.shape]
        slice_shape = tuple(scaled(dim, n) for dim, n in zip(value.shape, value.slice_shape, strict=True))
        return dataclasses.replace(value, shape=Shape(dims), slice_shape=slice_shape)

    def changed(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(changed, x))
        if not isinstance(x, _WITH_VALUES):
            return x
        if x not in done:
            done[x] = of_value(x) if isinstance(x, Value) else _with_fields(x, changed)
        return done[x]

    return dataclasses.replace(
        plan,
        instructions=changed(plan.instructions),
        fetches=changed(plan.fetches),
        checks=changed(plan.checks),
        awaited={changed(i): changed(other) for i, other in plan.awaited.items()},
    )


def _with_fields(x: Any, changed: Callable[[Any], Any]) -> Any:
    return dataclasses.replace(x, **{f.name: changed(getattr(x, f.name)) for f in dataclasses.fields(x)})
