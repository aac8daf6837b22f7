"""Routes from layout to layout: no way among all there are sends less, and what arrives is right."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from meshtf.dimension import Shape, convert_to_shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.lowering.core_slices import joined, split
from meshtf.lowering.interpreter import Interpreter
from meshtf.planning import core_positions
from meshtf.planning.moves.reshard import LocalSlice, Route, State, cheapest_route
from meshtf.planning.plan import Plan
from meshtf.testing import assert_close
from tests.planning.every_layout import every_layout

pytestmark = pytest.mark.quick

_DTYPE_SIZE = 4


class EveryStep:
    """All single steps between layouts in whatever direction. Only free mesh axes are used as the search uses them:
    for splits that the target has. Sums are done at once, or scattered as the target is split."""

    def __init__(self, sizes: tuple[int, ...], mesh_shape: Shape) -> None:
        self.sizes, self.mesh_shape = sizes, mesh_shape
        self.layouts = set(every_layout(sizes, mesh_shape))
        self.runs: list[set[Axes]] = []

    def cost(self, start: State, goal: State) -> int:
        """Fewest bytes, by Dijkstra's algorithm over every state there is."""
        self.runs = [{w[i:j] for i, j in itertools.combinations(range(len(w) + 1), 2)} for w in goal.axes]
        heap: list[tuple[int, int, State]] = [(0, 0, start)]
        counter, done = itertools.count(1), set()
        while heap:
            sent, _, state = heapq.heappop(heap)
            if state == goal:
                return sent
            if state not in done:
                done.add(state)
                for more, after in self.steps(state):
                    heapq.heappush(heap, (sent + more, next(counter), after))
        raise AssertionError("unreachable")

    def steps(self, state: State) -> Iterator[tuple[int, State]]:
        size = math.prod(self.sizes) * _DTYPE_SIZE // self._n(a for axes in state.axes for a in axes)
        yield from self._sums(state, size)
        used = {a for axes in state.axes for a in axes} | set(state.pending)
        free = [a for a in self.mesh_shape.dimension_names if a not in used]
        for dim, own in enumerate(state.axes):
            for axes in self.runs[dim] & set(_orders(free)):
                yield from self._to(0, state, {dim: own + axes})
            for start in range(len(own)):
                kept, moved = own[:start], own[start:]
                n = self._n(moved)
                yield from self._to(size * (n - 1), state, {dim: kept})
                for other in range(len(self.sizes)):
                    if other != dim:
                        yield from self._to(size * (n - 1) // n, state, {dim: kept, other: state.axes[other] + moved})
        parts = [self._n(axes) for axes in state.axes]
        for axes in self.layouts:
            if [self._n(a) for a in axes] == parts and not state.pending:
                yield size, State(axes)

    def _sums(self, state: State, size: int) -> Iterator[tuple[int, State]]:
        if state.pending:
            n = self._n(state.pending)
            yield 2 * size * (n - 1) // n, State(state.axes)
        for dim, own in enumerate(state.axes):
            for axes in self.runs[dim] & set(_orders(state.pending)):
                n, left = self._n(axes), tuple(a for a in state.pending if a not in axes)
                yield from self._to(size * (n - 1) // n, State(state.axes, left), {dim: own + axes})

    def _to(self, cost: int, state: State, changed: dict[int, Axes]) -> Iterator[tuple[int, State]]:
        axes = tuple(changed.get(dim, own) for dim, own in enumerate(state.axes))
        if axes in self.layouts:
            yield cost, State(axes, state.pending)

    def _n(self, axes: Iterator[str] | Axes) -> int:
        return axes_size(axes, self.mesh_shape)


def _orders(axes: Axes | list[str]) -> Iterator[Axes]:
    return (order for n in range(1, len(axes) + 1) for order in itertools.permutations(axes, n))


def pairs(mesh_shape: Shape, sizes: tuple[int, ...], count: int) -> Iterator[tuple[State, TensorLayout]]:
    """Layouts to go from, with sums pending over any of the axes that are left, and to go to."""
    rng, found = random.Random(count), every_layout(sizes, mesh_shape)
    every = [(s, t) for s in found for t in found]
    for source, target in every if len(every) <= count else rng.sample(every, count):
        used = {a for axes in source for a in axes}
        left = [a for a in mesh_shape.dimension_names if a not in used]
        yield State(source, tuple(sorted(rng.sample(left, rng.randint(0, len(left)))))), TensorLayout(target)


_CASES = [
    ("rows:2;cols:2", (8, 8), 400),
    ("rows:2;cols:4", (24, 16), 400),
    ("rows:4;cols:2", (8, 16, 16), 150),
    ("x:2;y:2;z:2", (16, 8), 150),
    ("all:12", (12, 24), 50),
]


@pytest.mark.parametrize(("mesh", "sizes", "count"), _CASES)
def test_no_route_sends_less(mesh: str, sizes: tuple[int, ...], count: int) -> None:
    mesh_shape = convert_to_shape(mesh)
    shape = Shape([(f"d{i}", n) for i, n in enumerate(sizes)])
    every = EveryStep(sizes, mesh_shape)
    for start, target in pairs(mesh_shape, sizes, count):
        route = cheapest_route(TensorLayout(start.axes), start.pending, target, shape, _DTYPE_SIZE, mesh_shape)
        least = every.cost(start, State(target.axes))
        assert route.bytes_sent == least, f"{start} to {target}: {route.bytes_sent} bytes, {least} would do\n{route}"


def follow(route: Route, slices: list[np.ndarray], start: State, plan: Plan) -> list[np.ndarray]:
    """The slices after a route: collectives by the interpreter, local slices by NumPy."""
    interpreter = Interpreter(plan)
    for step in route.steps:
        if not isinstance(step, LocalSlice):
            slices = interpreter.collective(step, slices)
            continue
        n = axes_size(step.axes, plan.mesh_shape)
        at = [core_positions.position(core, step.axes, plan.mesh_shape) for core in range(len(slices))]
        slices = [np.split(x, n, step.dim)[position] for x, position in zip(slices, at, strict=True)]
    return slices


@pytest.mark.parametrize(("mesh", "sizes", "count"), _CASES)
def test_what_arrives_is_right(mesh: str, sizes: tuple[int, ...], count: int) -> None:
    mesh_shape = convert_to_shape(mesh)
    shape = Shape([(f"d{i}", n) for i, n in enumerate(sizes)])
    plan = Plan(mesh_shape, (), (), (), False)
    whole = np.arange(shape.size, dtype=np.float64).reshape(sizes)
    for start, target in pairs(mesh_shape, sizes, count):
        route = cheapest_route(TensorLayout(start.axes), start.pending, target, shape, _DTYPE_SIZE, mesh_shape)
        slices = split(whole, TensorLayout(start.axes), plan)
        # Terms that differ from core to core along the pending axes, and add up to the whole.
        n = axes_size(start.pending, mesh_shape)
        own = [core_positions.position(core, start.pending, mesh_shape) + 1 for core in range(mesh_shape.size)]
        terms = [x * weight / (n * (n + 1) / 2) for x, weight in zip(slices, own, strict=True)]
        arrived = joined(follow(route, terms, start, plan), target, plan)
        assert_close(arrived, whole, terms=mesh_shape.size + 2, what=f"{start} to {target}: {route}")


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        (((), ()), (("rows",), ()), []),
        ((("rows",), ()), ((), ()), ["all_gather"]),
        ((("rows",), ()), ((), ("rows",)), ["all_to_all"]),
        ((("rows",), ()), (("cols",), ()), ["permute"]),
        ((("rows", "cols"), ()), (("cols", "rows"), ()), ["permute"]),
        ((("rows",), ("cols",)), (("cols",), ("rows",)), ["permute"]),
        ((("rows", "cols"), ()), (("rows",), ("cols",)), ["all_to_all"]),
        ((("rows", "cols"), ()), (("rows",), ()), ["all_gather"]),
    ],
)
def test_kinds_of_steps(source: tuple[Axes, ...], target: tuple[Axes, ...], kinds: list[str]) -> None:
    route = cheapest_route(
        TensorLayout(source),
        (),
        TensorLayout(target),
        convert_to_shape("a:8 b:8"),
        4,
        convert_to_shape("rows:2 cols:2"),
    )
    assert [step.kind for step in route.steps if not isinstance(step, LocalSlice)] == kinds
