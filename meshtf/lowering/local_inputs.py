"""Finds the part of each input that the cores of one process read, so that each process need only feed its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshtf.errors import FeedError
from meshtf.host_array import host_array
from meshtf.lowering.feeding import UnfitError, fitted
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan, Value

InputSlice = tuple[slice, ...]
"""A part of an input that has an interval of each dimension."""


def input_slices(plan: Plan, cores: Sequence[int]) -> dict[str, InputSlice]:
    """The part of each input that must be fed, by its name: the smallest box that holds all that these cores read.

    The box is the whole input if one process has all cores. Arrays that the program was built with are not fed.
    """
    return {name: _box(value, plan, cores) for name, value in _fed(plan).items()}


def _fed(plan: Plan) -> dict[str, Value]:
    """The inputs whose values are not known before the program runs, by name."""
    return {
        feed.name: feed.output
        for feed in plan.feeds
        if isinstance(feed.operation, InputOperation) and feed.operation.value is None
    }


def _box(fed: Value, plan: Plan, cores: Sequence[int]) -> InputSlice:
    sizes = fed.shape.to_integer_list
    starts, stops = list(sizes), [0] * len(sizes)
    for core in cores:
        block = core_positions.block(core, fed.layout.axes, plan.mesh_shape)
        for dim, (place, size) in enumerate(zip(block, fed.slice_shape, strict=True)):
            starts[dim] = min(starts[dim], place * size)
            stops[dim] = max(stops[dim], min((place + 1) * size, sizes[dim]))
    return tuple(slice(min(a, b), b) for a, b in zip(starts, stops, strict=True))


def whole_inputs(parts: Mapping[str, Any], boxes: Mapping[str, InputSlice], plan: Plan) -> dict[str, np.ndarray]:
    """Arrays of the inputs' whole sizes, which hold these parts in their boxes, and zeros elsewhere.

    Raises:
      FeedError: if a part does not have its box's sizes or its input's dtype, or belongs to no input.
    """
    feeds = _fed(plan)
    whole = {}
    for name, part in parts.items():
        if name not in feeds:
            raise FeedError(f'no input "{name}"; the inputs that the program reads are: {", ".join(feeds) or "none"}')
        sizes = [box.stop - box.start for box in boxes[name]]
        shape, dtype = feeds[name].shape, feeds[name].dtype
        try:
            fit = fitted(part, dtype, sizes)
        except UnfitError as fault:
            box = ", ".join(f"{d.name} {b.start} to {b.stop}" for d, b in zip(shape, boxes[name], strict=True))
            raise FeedError(
                f'of input "{name}" [{shape}], this process feeds {box}: an array of {dtype.name} of shape {sizes}; '
                f"the part {fault}"
            ) from None
        whole[name] = np.zeros(shape.to_integer_list, dtype.as_numpy_dtype)
        whole[name][boxes[name]] = host_array(fit)
    return whole
