"""How a mesh lies over processes: the axes that cross processes, and the members of a group in each process.

Values move through memory within a process, and over a network between processes. A collective whose group spans
processes is done in stages, so that each byte crosses once per process.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from meshtf.dimension import Shape
from meshtf.errors import counted
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.core_positions import groups_over, positions

ProcessOfCore = tuple[int, ...]
"""The process of each core; empty where one process has all."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessSpan:
    """The way in which groups of cores over some mesh axes lie over processes, the same for every group.

    Attributes:
      processes: the number of processes that a group has members in.
      members: the number of a group's members in each of these processes.
      groups_of_each: the number of such groups that a process takes part in.
    """

    processes: int
    members: int
    groups_of_each: int

    def __str__(self) -> str:
        if self.members == 1:
            return f"across {self.processes} processes"
        return f"within each process ({counted(self.members, 'core')}), across {self.processes} processes, within"


def crossing_axes(axes: Iterable[str], mesh_shape: Shape, process_of_core: ProcessOfCore) -> Axes:
    """The axes along which some neighbours are in different processes."""
    if not process_of_core:
        return ()
    process = np.asarray(process_of_core)
    return tuple(a for a in axes if (np.ptp(process[groups_over([a], mesh_shape)], axis=1) > 0).any())


def split_over_processes(layout: TensorLayout, mesh_shape: Shape, process_of_core: ProcessOfCore) -> TensorLayout:
    """The layout in which only the dimensions that are split over processes stay split."""
    crossing = set(crossing_axes(layout.used, mesh_shape, process_of_core))
    return TensorLayout(tuple(own if crossing & set(own) else () for own in layout.axes))


def span_of(groups: np.ndarray, process_of_core: ProcessOfCore) -> ProcessSpan | None:
    """How groups of cores span processes; None if no group spans several processes, or the groups do so unevenly.

    With None, each collective runs as it does within one process.
    """
    if not process_of_core:
        return None
    processes = np.asarray(process_of_core)[groups]
    counts = [np.unique(own, return_counts=True) for own in processes]
    numbers, members = {len(which) for which, _ in counts}, {int(n) for _, own in counts for n in own}
    if len(numbers) != 1 or len(members) != 1 or numbers == {1}:
        return None
    taking_part = np.unique(np.concatenate([which for which, _ in counts]), return_counts=True)[1]
    # Stages are one program for all processes, so each must take part in equally many groups.
    if len(set(taking_part.tolist())) != 1:
        return None
    return ProcessSpan(numbers.pop(), members.pop(), int(taking_part[0]))


def by_process(groups: np.ndarray, process_of_core: ProcessOfCore, span: ProcessSpan) -> np.ndarray:
    """`int[groups, processes * members]`: positions in each group, those of one process side by side.

    Processes are in order of their first member in the group, and the members of a process in the group's order.
    """
    processes = np.asarray(process_of_core)[groups]
    orders = []
    for own in processes:
        first = {process: i for i, process in reversed(list(enumerate(own.tolist())))}
        orders.append(np.argsort([first[process] for process in own.tolist()], kind="stable"))
    return np.asarray(orders)


def exchanged_bytes(groups: np.ndarray, process_of_core: ProcessOfCore, sent_to_each: int) -> int:
    """The most bytes that a process sends to others, if each core of a group sends `sent_to_each` bytes to every other
    core."""
    processes = np.asarray(process_of_core)
    sent: dict[int, int] = {}
    for group in groups if process_of_core else ():
        which, counts = np.unique(processes[group], return_counts=True)
        for process, own in zip(which.tolist(), counts.tolist(), strict=True):
            sent[process] = sent.get(process, 0) + own * (len(group) - own) * sent_to_each
    return max(sent.values(), default=0)


def ring_bytes(groups: np.ndarray, process_of_core: ProcessOfCore, sent_on: int) -> int:
    """The most bytes that a process sends to others, if each core of a group sends `sent_on` bytes to the next core.

    The cores of one process are adjacent in this order.
    """
    processes = np.asarray(process_of_core)
    spanning = [np.unique(processes[group]) for group in groups] if process_of_core else []
    taking_part = [process for which in spanning if len(which) > 1 for process in which.tolist()]
    return max((taking_part.count(process) for process in set(taking_part)), default=0) * sent_on


def most_leaving(destinations: Sequence[int], process_of_core: ProcessOfCore) -> int:
    """The largest number of slices that one process sends to other processes."""
    if not process_of_core:
        return 0
    leaving = [p for core, p in enumerate(process_of_core) if process_of_core[destinations[core]] != p]
    return max((leaving.count(p) for p in set(leaving)), default=0)


def laid_over(shape: Shape, num_processes: int, outermost: Axes) -> ProcessOfCore:
    """The process that each core is in: each process has a block of the mesh, all of equally many cores.

    The first axis is divided among as many processes as its size allows, the next axis among those that are left, and
    so on. The axes `outermost` come before the others. Since each process has a block of the mesh, every group of cores
    along any axes has equally many members in each process that it has members in.

    For example, four processes on a mesh rows:2 cols:4 divide `rows` in two and `cols` in two. Each has a block of
    1 x 2 cores.
    """
    names = [*outermost, *(n for n in shape.dimension_names if n not in outermost)]
    left, counts = num_processes, {}
    for name in names:
        counts[name] = math.gcd(left, shape.get_dim_by_name(name).size)
        left //= counts[name]
    process = np.zeros(shape.size, np.int64)
    for name in names:
        along = positions((name,), shape) // (shape.get_dim_by_name(name).size // counts[name])
        process = process * counts[name] + along
    return tuple(process.tolist())
