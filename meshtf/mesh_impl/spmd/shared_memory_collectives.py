"""Collectives of cores that share a memory, inside of a program that has the slices of all: nothing is sent.

A sum over eight cores is seven additions, and each core is handed the one result. A gathered weight is there once, and
not once for each core. The runtime's collectives would copy blocks from device to device, and let each core add them
up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.dtypes import sum_dtype
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.core_positions import groups_over
from meshtf.planning.local_work import extrema
from meshtf.planning.local_work.reductions import Reduction

_COMBINE: dict[Reduction, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "add": tf.add,
    "multiply": tf.multiply,
    "max": extrema.maximum,
    "min": extrema.minimum,
}
_COMBINE_BOOLS: dict[Reduction, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "add": tf.logical_or,
    "multiply": tf.logical_and,
    "max": tf.logical_or,
    "min": tf.logical_and,
}

SlicesByCore = Mapping[int, tf.Tensor]
"""The slices of one value on the cores that share the memory. Cores that were handed the same tensor share it."""


class CollectivesForAll(Protocol):
    """Each collective as `BackendCollectives` defines it, of the slices of all cores that share a memory."""

    def all_reduce(self, x: SlicesByCore, axes: Sequence[str], reduction: Reduction) -> SlicesByCore: ...

    def all_gather(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore: ...

    def all_to_all(self, x: SlicesByCore, axes: Sequence[str], split_dim: int, concat_dim: int) -> SlicesByCore: ...

    def reduce_scatter(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore: ...

    def permute(self, x: SlicesByCore, destinations: Sequence[int]) -> SlicesByCore: ...


def emit_for_all(step: CollectiveStep, slices: SlicesByCore, collectives: CollectivesForAll) -> SlicesByCore:
    """Emits a collective on the slices of all cores, and returns the slices that they hold afterwards.

    A collective's `emit` is written for one core. So it is run for each core up to the first thing that it asks of the
    other cores. This is then done for all cores at once, and `emit` is run again from the start with the answers, until
    no core asks for more. Local operations before a question are emitted again each time. TensorFlow leaves out the
    operations that nothing uses.
    """
    answers = list[SlicesByCore]()
    while True:
        results: dict[int, tf.Tensor] = {}
        asked: dict[int, _AskedForMoreError] = {}
        for core, x in slices.items():
            try:
                results[core] = step.emit(_OfOneCore([answer[core] for answer in answers]), x)
            except _AskedForMoreError as question:
                asked[core] = question
        if not asked:
            return results
        first = next(iter(asked.values()))
        answers.append(first.ask(collectives, {core: question.x for core, question in asked.items()}))


class SharedMemoryCollectives:
    """`CollectivesForAll` of groups of cores that all share the memory, on a mesh that may have others."""

    def __init__(self, mesh_shape: Shape) -> None:
        self._mesh_shape = mesh_shape

    def all_reduce(self, x: SlicesByCore, axes: Sequence[str], reduction: Reduction) -> SlicesByCore:
        return self._in_groups(x, axes, lambda group: [reduced(group, reduction)] * len(group))

    def all_gather(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore:
        return self._in_groups(x, axes, lambda group: [tf.concat(group, dim)] * len(group))

    def all_to_all(self, x: SlicesByCore, axes: Sequence[str], split_dim: int, concat_dim: int) -> SlicesByCore:
        def exchanged(group: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
            blocks = [tf.split(own, len(group), split_dim) for own in group]
            return [tf.concat([own[position] for own in blocks], concat_dim) for position in range(len(group))]

        return self._in_groups(x, axes, exchanged)

    def reduce_scatter(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore:
        return self._in_groups(x, axes, lambda group: tf.split(reduced(group, "add"), len(group), dim))

    def permute(self, x: SlicesByCore, destinations: Sequence[int]) -> SlicesByCore:
        sources = np.argsort(destinations)
        return {core: x[sources[core]] for core in x}

    def _in_groups(
        self,
        x: SlicesByCore,
        axes: Sequence[str],
        received: Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]],
    ) -> SlicesByCore:
        """The slices that `received` gives, one for each core of a group. It is called for each group, with the group's
        slices by position along the axes."""
        result = dict(x)
        for group in groups_over(axes, self._mesh_shape).tolist():
            if group[0] in x:
                result |= zip(group, received([x[core] for core in group]), strict=True)
        return result


@dataclasses.dataclass(eq=False)
class _AskedForMoreError(Exception):
    """Ends a core's run of `emit` where it asks the other cores for something.

    x: the slice that the core sends. ask: does the collective, on the slices that all cores send.
    """

    x: tf.Tensor
    ask: Callable[[CollectivesForAll, SlicesByCore], SlicesByCore]


class _OfOneCore:
    """`BackendCollectives` of a core that has the answers to its first questions."""

    def __init__(self, answers: Sequence[tf.Tensor]) -> None:
        self._answers = iter(answers)

    def all_reduce(self, x: tf.Tensor, axes: Sequence[str], reduction: Reduction) -> tf.Tensor:
        return self._answer(x, lambda shared, slices: shared.all_reduce(slices, axes, reduction))

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        return self._answer(x, lambda shared, slices: shared.all_gather(slices, axes, dim))

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        return self._answer(x, lambda shared, slices: shared.all_to_all(slices, axes, split_dim, concat_dim))

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        return self._answer(x, lambda shared, slices: shared.reduce_scatter(slices, axes, dim))

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        return self._answer(x, lambda shared, slices: shared.permute(slices, destinations))

    def _answer(self, x: tf.Tensor, ask: Callable[[CollectivesForAll, SlicesByCore], SlicesByCore]) -> tf.Tensor:
        for answer in self._answers:
            return answer
        raise _AskedForMoreError(x, ask)


def reduced(group: Sequence[tf.Tensor], reduction: Reduction) -> tf.Tensor:
    """Term by term in the order of the cores, whatever is there first: the same bits in each run."""
    dtype = group[0].dtype
    if dtype == tf.bool:
        return functools.reduce(_COMBINE_BOOLS[reduction], group)
    wide = functools.reduce(_COMBINE[reduction], [tf.cast(x, sum_dtype(dtype)) for x in group])
    return tf.cast(wide, dtype)
