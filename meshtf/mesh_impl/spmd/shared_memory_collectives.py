"""Collectives of cores that share memory, in a program that has the slices of all cores. Nothing is sent.

A sum over eight cores is seven additions, and all cores share the result. A gathered weight is in memory once, not once
per core. TensorFlow's collectives would copy blocks from device to device, and each core would add them.
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
"""The slices of one value on the cores that share memory. Several cores may share one tensor."""


class CollectivesForAll(Protocol):
    """The collectives of `BackendCollectives`, on the slices of all cores that share memory."""

    def all_reduce(self, x: SlicesByCore, axes: Sequence[str], reduction: Reduction) -> SlicesByCore: ...

    def all_gather(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore: ...

    def all_to_all(self, x: SlicesByCore, axes: Sequence[str], split_dim: int, concat_dim: int) -> SlicesByCore: ...

    def reduce_scatter(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore: ...

    def permute(self, x: SlicesByCore, destinations: Sequence[int]) -> SlicesByCore: ...


def emit_for_all(step: CollectiveStep, slices: SlicesByCore, collectives: CollectivesForAll) -> SlicesByCore:
    """Emits a collective on the slices of all cores, and returns the slices that they hold afterwards.

    A collective's `emit` is written for one core. So it is run for each core up to its first communication with other
    cores. This is then done for all cores at once. Then `emit` is run again from the start with the result, until no
    core communicates any more. Local operations before a communication are emitted again each time. TensorFlow prunes
    the unused copies.
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
    """`CollectivesForAll` for groups whose cores all share memory. The mesh may also have other cores."""

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
        """Applies `received` to the slices of each group, ordered by position along the axes.

        It returns a slice for each core of the group.
        """
        result = dict(x)
        for group in groups_over(axes, self._mesh_shape).tolist():
            if group[0] in x:
                result |= zip(group, received([x[core] for core in group]), strict=True)
        return result


@dataclasses.dataclass(eq=False)
class _AskedForMoreError(Exception):
    """Stops a core's run of `emit` when it communicates with other cores.

    x: the slice that the core sends. ask: the collective, a function of the slices that all cores send.
    """

    x: tf.Tensor
    ask: Callable[[CollectivesForAll, SlicesByCore], SlicesByCore]


class _OfOneCore:
    """`BackendCollectives` of one core, with the results of its first collectives."""

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
    """Reduces term by term in the order of the cores, so that each run has the same bits."""
    dtype = group[0].dtype
    if dtype == tf.bool:
        return functools.reduce(_COMBINE_BOOLS[reduction], group)
    wide = functools.reduce(_COMBINE[reduction], [tf.cast(x, sum_dtype(dtype)) for x in group])
    return tf.cast(wide, dtype)
