"""The cheapest way from one layout to another, pending sums included: a shortest path over layouts.

A state is a pair: the mesh axes of each dimension, and the mesh axes over which a sum is pending. Its neighbours are
the states that one local slice, allreduce, reduce-scatter, allgather, alltoall or permute turns it into. The path with
the fewest bytes sent per core wins. Among equals, the path with the fewest collectives wins. The search uses a mesh
axis that the source leaves free only if the target has it. Dividing an allreduce among idle replicas would send less
from each core, but in more collectives.

On a mesh rows:2 cols:2, from [batch:8/rows width:8] to [batch:8 width:8/rows] an alltoall sends half of a slice, where
an allgather and a local slice would send all of it. A pending sum over `cols`, wanted in [batch:8/rows width:8/cols],
takes a reduce-scatter along `width`, which sends half the bytes of an allreduce.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
from collections.abc import Collection, Iterator
from typing import TypeAlias

import numpy as np

from meshtf.dimension import Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.permute import Permute
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.core_positions import positions
from meshtf.planning.layouts.padding import padded_shape


@dataclasses.dataclass(frozen=True, slots=True)
class LocalSlice:
    """Each core keeps its part of a dimension that it holds whole (or split by more major axes)."""

    dim: int
    axes: Axes


Step: TypeAlias = LocalSlice | CollectiveStep


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The way a value is laid out over the mesh, with its pending sum."""

    axes: tuple[Axes, ...]
    pending: Axes = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Steps to take, the state after each, and the bytes that each core sends on the way."""

    steps: tuple[Step, ...]
    states: tuple[State, ...]
    bytes_sent: int


_NO_STEPS = Route((), (), 0)


def cheapest_route(
    source: TensorLayout, pending: Axes, target: TensorLayout, shape: Shape, dtype_size: int, mesh_shape: Shape
) -> Route:
    """The route that sends the fewest bytes from `source`, with sums pending over `pending`, to `target` with no
    pending sum.

    If one of the layouts does not divide a dimension, the route moves the padded tensor.
    """
    if source.axes == target.axes and not pending:
        return _NO_STEPS
    shape = padded_shape(shape, mesh_shape, source, target)
    start, goal = State(source.axes, tuple(sorted(pending))), State(target.axes)
    return _search(start, goal, tuple(shape.to_integer_list), dtype_size, mesh_shape)


@functools.lru_cache(maxsize=65536)
def _search(start: State, goal: State, sizes: tuple[int, ...], dtype_size: int, mesh_shape: Shape) -> Route:
    whole = dtype_size
    for n in sizes:
        whole *= n
    # The counter orders states of equal cost, because states cannot be compared, and makes the result the same on every
    # run.
    counter = itertools.count()
    heap: list[tuple[int, int, int, State, tuple[Step, ...], tuple[State, ...]]] = [
        (0, 0, next(counter), start, (), ())
    ]
    done: set[State] = set()
    cheapest: dict[State, tuple[int, int]] = {}
    while heap:
        sent, collectives, _, state, steps, states = heapq.heappop(heap)
        if state == goal:  # the heap pops states in order of cost, so no route is cheaper
            return Route(_with_destinations(start, steps, states, mesh_shape), states, sent)
        if state in done:
            continue
        done.add(state)
        slice_bytes = whole // axes_size((a for axes in state.axes for a in axes), mesh_shape)
        for step, after in _neighbours(state, goal, sizes, mesh_shape):
            if after in done:
                continue
            is_collective = not isinstance(step, LocalSlice)
            cost = 0 if isinstance(step, LocalSlice) else step.bytes_sent(slice_bytes, mesh_shape)
            costs = (sent + cost, collectives + is_collective)
            # Among equals the first way to a state wins.
            if after not in cheapest or costs < cheapest[after]:
                cheapest[after] = costs
                heapq.heappush(heap, (*costs, next(counter), after, (*steps, step), (*states, after)))
    raise AssertionError(f"no route from {start} to {goal}: gathering everything is always one")


def _neighbours(state: State, goal: State, sizes: tuple[int, ...], mesh_shape: Shape) -> Iterator[tuple[Step, State]]:
    yield from _reductions(state, goal, sizes, mesh_shape)
    yield from _slices(state, goal, sizes, mesh_shape)
    yield from _moves(state, sizes, mesh_shape)
    # A permute of terms could move them along the axes over which their sum is pending.
    if not state.pending:
        yield from _permutes(state, goal, mesh_shape)


def _reductions(state: State, goal: State, sizes: tuple[int, ...], mesh_shape: Shape) -> Iterator[tuple[Step, State]]:
    if not state.pending:
        return
    yield AllReduce(_in_mesh_order(state.pending, mesh_shape)), State(state.axes)
    for dim, wanted in enumerate(goal.axes):
        for axes in _runs(wanted):
            if set(axes) <= set(state.pending) and _divides(sizes[dim], state.axes[dim] + axes, mesh_shape):
                left = tuple(a for a in state.pending if a not in axes)
                yield (
                    ReduceScatter(axes, dim),
                    State(_replaced(state.axes, dim, state.axes[dim] + axes), left),
                )


def _slices(state: State, goal: State, sizes: tuple[int, ...], mesh_shape: Shape) -> Iterator[tuple[Step, State]]:
    # A slice along an axis needs equal values along it, which is not so where the axis splits or a sum is pending.
    used = {a for axes in state.axes for a in axes} | set(state.pending)
    for dim, wanted in enumerate(goal.axes):
        for axes in _runs(wanted):
            if not used & set(axes) and _divides(sizes[dim], state.axes[dim] + axes, mesh_shape):
                yield LocalSlice(dim, axes), State(_replaced(state.axes, dim, state.axes[dim] + axes), state.pending)


def _moves(state: State, sizes: tuple[int, ...], mesh_shape: Shape) -> Iterator[tuple[Step, State]]:
    for dim, own in enumerate(state.axes):
        for start in range(len(own)):
            kept, moved = own[:start], own[start:]
            without = _replaced(state.axes, dim, kept)
            yield AllGather(moved, dim), State(without, state.pending)
            for other, grown in enumerate(axes + moved for axes in state.axes):
                # Axes that the goal does not have there are allowed too: an axis may move together with one that the
                # goal has.
                if other != dim and _divides(sizes[other], grown, mesh_shape):
                    step = AllToAll(moved, split_dim=other, concat_dim=dim)
                    yield step, State(_replaced(without, other, grown), state.pending)


def _permutes(state: State, goal: State, mesh_shape: Shape) -> Iterator[tuple[Step, State]]:
    # A permute changes no slice's size. It may lead to the goal itself, or to another order of one dimension's axes, or
    # to other axes of the same sizes.
    candidates = []
    if [axes_size(a, mesh_shape) for a in state.axes] == [axes_size(a, mesh_shape) for a in goal.axes]:
        candidates.append(goal.axes)
    for dim, own in enumerate(state.axes):
        candidates += [_replaced(state.axes, dim, order) for order in itertools.permutations(own) if order != own]
    candidates += [tuple(tuple(r[a] for a in own) for own in state.axes) for r in _relabelings(mesh_shape)]
    for axes in candidates:
        if axes == state.axes:
            continue
        moving = {a for own in (*state.axes, *axes) for a in own}
        yield Permute(_in_mesh_order(moving, mesh_shape)), State(axes)


@functools.lru_cache(maxsize=64)
def _relabelings(mesh_shape: Shape) -> tuple[dict[str, str], ...]:
    """Every permutation of the mesh axes that maps each axis to one of the same size, except the identity."""
    orders = list(itertools.permutations(mesh_shape))[1:]
    same = [order for order in orders if all(a.size == b.size for a, b in zip(mesh_shape, order, strict=True))]
    return tuple({a.name: b.name for a, b in zip(mesh_shape, order, strict=True)} for order in same)


def _with_destinations(
    start: State, steps: tuple[Step, ...], states: tuple[State, ...], mesh_shape: Shape
) -> tuple[Step, ...]:
    """Fills in the destinations of permutes. The search leaves them out because they do not change its costs."""
    filled: list[Step] = []
    for step, before, after in zip(steps, (start, *states), states, strict=False):
        if isinstance(step, Permute):
            step = dataclasses.replace(step, destinations=_destinations(before.axes, after.axes, mesh_shape))
        filled.append(step)
    return tuple(filled)


def _destinations(source: tuple[Axes, ...], target: tuple[Axes, ...], mesh_shape: Shape) -> tuple[int, ...]:
    """The core that each core's slice goes to. A core that already holds the block that it needs keeps it."""
    held, needed = (_block_numbers(axes, mesh_shape) for axes in (source, target))
    destinations = np.arange(mesh_shape.size)
    (moving,) = np.nonzero(held != needed)
    # As many cores need a block as can send it. The first core that holds it sends it to the first core that needs it.
    givers = moving[np.argsort(held[moving], kind="stable")]
    destinations[givers] = moving[np.argsort(needed[moving], kind="stable")]
    return tuple(destinations.tolist())


def _block_numbers(layout: tuple[Axes, ...], mesh_shape: Shape) -> np.ndarray:
    """The row-major index of the block of a tensor that each core holds: [cores]."""
    numbers = np.zeros(mesh_shape.size, np.int64)
    for axes in layout:
        numbers = numbers * axes_size(axes, mesh_shape) + positions(axes, mesh_shape)
    return numbers


def _runs(axes: Axes) -> Iterator[Axes]:
    """Every contiguous run of an ordered tuple of axes."""
    for start in range(len(axes)):
        for stop in range(start + 1, len(axes) + 1):
            yield axes[start:stop]


def _in_mesh_order(axes: Collection[str], mesh_shape: Shape) -> Axes:
    return tuple(d.name for d in mesh_shape if d.name in axes)


def _divides(size: int, axes: Axes, mesh_shape: Shape) -> bool:
    return size % axes_size(axes, mesh_shape) == 0


def _replaced(axes: tuple[Axes, ...], dim: int, new: Axes) -> tuple[Axes, ...]:
    return (*axes[:dim], new, *axes[dim + 1 :])
