"""Collectives of cores that share memory with some other cores, and communicate with the rest over a network.

They have stages. The cores of a process sum or concatenate their slices in memory. One core of each process exchanges
the result with one core of each other process, by TensorFlow's collectives. Then all cores of the process share the
received result.

For example, take an allreduce over two processes of four cores each. Each process first sums its four slices in memory.
So it sends the bytes of one slice. In a ring of all eight cores it would send the bytes of 1.75 slices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.mesh_impl.blocks import merge_from_front, split_to_front
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives
from meshtf.mesh_impl.spmd.shared_memory_collectives import (
    CollectivesForAll,
    SharedMemoryCollectives,
    SlicesByCore,
    reduced,
)
from meshtf.planning.core_positions import groups_over
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.process_spans import ProcessOfCore, by_process, crossing_axes, span_of

_Stages = Callable[[BoundCollectives, Sequence[tf.Tensor], np.ndarray], Sequence[tf.Tensor]]
"""Does a collective in stages, and returns the tensor that each of a group's members in this process receives.

The arguments are the collectives among one member of each process, the tensors that this process's members send, and
the positions in the group by place, `[processes, members]`."""


class StagedCollectives:
    """`CollectivesForAll` for cores that share memory with the cores of their own process.

    Args:
      mesh_shape: the shape of the mesh, over all processes.
      process_of_core: the process of each core of the mesh.
      bound: TensorFlow's collectives of each core of this process, in the function that is being traced.
    """

    def __init__(
        self, mesh_shape: Shape, process_of_core: ProcessOfCore, bound: Mapping[int, BoundCollectives]
    ) -> None:
        self._mesh_shape = mesh_shape
        self._process_of_core = process_of_core
        self._bound = bound
        self._in_memory = SharedMemoryCollectives(mesh_shape)

    def all_reduce(self, x: SlicesByCore, axes: Sequence[str], reduction: Reduction) -> SlicesByCore:
        def stages(across: BoundCollectives, sent: Sequence[tf.Tensor], _: np.ndarray) -> list[tf.Tensor]:
            return [across.all_reduce(reduced(sent, reduction), axes, reduction)] * len(sent)

        return self._communicate(
            x,
            axes,
            in_memory=lambda collectives: collectives.all_reduce(x, axes, reduction),
            alone=lambda collectives, own: collectives.all_reduce(own, axes, reduction),
            in_stages=stages,
        )

    def all_gather(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore:
        def stages(across: BoundCollectives, sent: Sequence[tf.Tensor], places: np.ndarray) -> list[tf.Tensor]:
            by_position = _taken(across.all_gather(tf.stack(sent), axes, 0), np.argsort(places))
            return [merge_from_front(by_position, dim)] * len(sent)

        return self._communicate(
            x,
            axes,
            in_memory=lambda collectives: collectives.all_gather(x, axes, dim),
            alone=lambda collectives, own: collectives.all_gather(own, axes, dim),
            in_stages=stages,
        )

    def all_to_all(self, x: SlicesByCore, axes: Sequence[str], split_dim: int, concat_dim: int) -> SlicesByCore:
        def stages(across: BoundCollectives, sent: Sequence[tf.Tensor], places: np.ndarray) -> list[tf.Tensor]:
            size, members = len(places), len(sent)
            blocks = [_taken(split_to_front(own, split_dim, size), places) for own in sent]
            # The first three dimensions are the destination process, the sending member, and the receiving member.
            apart = tf.stack([tf.reshape(b, [size // members, members, *b.shape[1:]]) for b in blocks], axis=1)
            moved = across.all_to_all(apart, axes, 0, 0)
            received = tf.unstack(tf.reshape(moved, [size, members, *blocks[0].shape[1:]]), axis=1)
            return [merge_from_front(_taken(own, np.argsort(places)), concat_dim) for own in received]

        return self._communicate(
            x,
            axes,
            in_memory=lambda collectives: collectives.all_to_all(x, axes, split_dim, concat_dim),
            alone=lambda collectives, own: collectives.all_to_all(own, axes, split_dim, concat_dim),
            in_stages=stages,
        )

    def reduce_scatter(self, x: SlicesByCore, axes: Sequence[str], dim: int) -> SlicesByCore:
        def stages(across: BoundCollectives, sent: Sequence[tf.Tensor], places: np.ndarray) -> list[tf.Tensor]:
            terms = _taken(split_to_front(reduced(sent, "add"), dim, len(places)), places)
            return tf.unstack(across.reduce_scatter(terms, axes, 0))

        return self._communicate(
            x,
            axes,
            in_memory=lambda collectives: collectives.reduce_scatter(x, axes, dim),
            alone=lambda collectives, own: collectives.reduce_scatter(own, axes, dim),
            in_stages=stages,
        )

    def permute(self, x: SlicesByCore, destinations: Sequence[int]) -> SlicesByCore:
        process = np.asarray(self._process_of_core)
        if (process == process[list(destinations)]).all():
            return self._in_memory.permute(x, destinations)
        return self._each_alone(x, lambda collectives, own: collectives.permute(own, destinations))

    def _communicate(
        self,
        x: SlicesByCore,
        axes: Sequence[str],
        *,
        in_memory: Callable[[CollectivesForAll], SlicesByCore],
        alone: Callable[[BoundCollectives, tf.Tensor], tf.Tensor],
        in_stages: _Stages,
    ) -> SlicesByCore:
        """Does a collective in stages if groups along the axes span processes evenly.

        If no group spans processes, it is done in memory. If groups span processes unevenly, each core communicates
        separately.
        """
        if not crossing_axes(axes, self._mesh_shape, self._process_of_core):
            return in_memory(self._in_memory)
        groups = groups_over(axes, self._mesh_shape)
        span = span_of(groups, self._process_of_core)
        if span is None:
            return self._each_alone(x, alone)
        keys, result = _InstanceKeys(), dict(x)
        for group, places in zip(groups, by_process(groups, self._process_of_core, span), strict=True):
            for members in group[places].reshape(span.processes, span.members).tolist():
                if members[0] in x:
                    across = keys.given_to(self._bound[members[0]]).across_processes(axes)
                    received = in_stages(across, [x[core] for core in members], places)
                    result |= zip(members, received, strict=True)
        return result

    def _each_alone(
        self, x: SlicesByCore, communicate: Callable[[BoundCollectives, tf.Tensor], tf.Tensor]
    ) -> SlicesByCore:
        keys = _InstanceKeys()
        return {core: communicate(keys.given_to(self._bound[core]), own) for core, own in x.items()}


class _InstanceKeys:
    """The instance keys of one collective. Several cores emit it one after the other, and all need the same keys."""

    def __init__(self) -> None:
        self._keys: list[int] = []

    def given_to(self, collectives: BoundCollectives) -> BoundCollectives:
        """The collectives of a core, with these keys, starting from the first."""
        numbers = itertools.count()

        def next_key() -> int:
            number = next(numbers)
            if number == len(self._keys):
                self._keys.append(collectives.new_instance_key())
            return self._keys[number]

        return collectives.with_instance_keys(next_key)


def _taken(x: tf.Tensor, order: np.ndarray) -> tf.Tensor:
    """The rows of x in an order; x itself if they already have it."""
    return x if (order == np.arange(len(order))).all() else tf.gather(x, order)
