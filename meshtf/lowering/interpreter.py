"""A plain interpreter of plans: all cores in lockstep in one thread, collectives as array arithmetic.

It shares the plan and the local kernels with emission, and nothing of the collective runtime: a mesh of any size can be
tried in one process with one device. It is for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes, TensorLayout
from meshtf.lowering import cores
from meshtf.lowering.plan import AssignVariable, Collective, CollectiveStep, Compute, Feed, Plan, ReadVariable, Value

_COMBINE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: np.logical_or(a, b) if a.dtype == bool else a + b,
    "multiply": lambda a, b: np.logical_and(a, b) if a.dtype == bool else a * b,
    "max": np.maximum,
    "min": np.minimum,
}


class KnownCore:
    """A core whose coordinates are known already."""

    def __init__(self, plan: Plan, core: int) -> None:
        self._plan = plan
        self._core = core

    def coordinate(self, axes: Axes) -> tf.Tensor:
        return tf.constant(cores.position(self._core, axes, self._plan.mesh_shape), tf.int32)

    def slice_begin(self, value: Value) -> list[tf.Tensor | int]:
        return [
            self.coordinate(axes) * n if axes else 0
            for axes, n in zip(value.layout.axes, value.slice_shape, strict=True)
        ]


class Interpreter:
    """Executes a plan on arrays.

    `variables` maps a variable's name to the slices of all cores; `run` replaces them.
    """

    def __init__(self, plan: Plan, variables: Mapping[str, Sequence[np.ndarray]] | None = None) -> None:
        self.plan = plan
        self.variables = {name: list(slices) for name, slices in (variables or {}).items()}
        self._cores = [KnownCore(plan, core) for core in range(plan.mesh_shape.size)]

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The fetches, whole. Fails where cores disagree on a value that should be alike."""
        slices: dict[Value, list[np.ndarray]] = {}
        assigned: dict[str, list[np.ndarray]] = {}
        for instruction in self.plan.instructions:
            if isinstance(instruction, Compute):
                slices.update(self._compute(instruction, slices))
            elif isinstance(instruction, Collective):
                slices[instruction.output] = self.collective(instruction.step, slices[instruction.input])
            elif isinstance(instruction, Feed):
                slices[instruction.output] = [np.asarray(feeds[instruction.name])] * len(self._cores)
            elif isinstance(instruction, ReadVariable):
                slices[instruction.output] = self.variables[instruction.name]
            elif isinstance(instruction, AssignVariable):
                assigned[instruction.name] = slices[instruction.input]
        self.variables.update(assigned)
        return [joined(slices[v], v.layout, self.plan) for v in self.plan.fetches]

    def _compute(self, instruction: Compute, slices: Mapping[Value, list[np.ndarray]]) -> dict[Value, list[np.ndarray]]:
        results: dict[Value, list[np.ndarray]] = {v: [] for v in instruction.outputs}
        for number, core in enumerate(self._cores):
            arrays = instruction.emit(core, *(tf.constant(slices[v][number]) for v in instruction.inputs))
            for value, array in zip(instruction.outputs, _as_sequence(arrays), strict=True):
                array = np.asarray(array)
                assert array.shape == value.slice_shape, (instruction.operation, array.shape, str(value))
                assert tf.as_dtype(array.dtype) == value.dtype, (instruction.operation, array.dtype, str(value))
                results[value].append(array)
        return results

    def collective(self, step: CollectiveStep, slices: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What each core holds after a collective."""
        if step.kind == "permute":
            result: list[np.ndarray] = [slices[0]] * len(slices)
            for core, destination in enumerate(step.destinations):
                result[destination] = slices[core]
            return result
        return [self._received(step, [slices[c] for c in self._group(core, step.axes)], core) for core in self._range]

    @property
    def _range(self) -> range:
        return range(len(self._cores))

    def _group(self, core: int, axes: Axes) -> list[int]:
        """The cores that differ from this one along `axes` only, in order of their position there."""
        mesh_shape = self.plan.mesh_shape
        own = cores.coordinates(core, mesh_shape)
        members = [
            other
            for other in self._range
            if all(c == own[a] for a, c in cores.coordinates(other, mesh_shape).items() if a not in axes)
        ]
        return sorted(members, key=lambda other: cores.position(other, axes, mesh_shape))

    def _received(self, step: CollectiveStep, group: Sequence[np.ndarray], core: int) -> np.ndarray:
        position = cores.position(core, step.axes, self.plan.mesh_shape)
        if step.kind == "all_gather":
            return np.concatenate(group, step.dim)
        if step.kind == "all_to_all":
            return np.concatenate([np.split(x, len(group), step.dim)[position] for x in group], step.concat_dim)
        total = group[0]
        for x in group[1:]:
            total = _COMBINE[step.reduction](total, x)
        total = total.astype(group[0].dtype)
        return np.split(total, len(group), step.dim)[position] if step.kind == "reduce_scatter" else total


def joined(slices: Sequence[np.ndarray], layout: TensorLayout, plan: Plan) -> np.ndarray:
    """The whole array of which the cores hold slices; slices that should be alike must be."""
    blocks: dict[tuple[int, ...], np.ndarray] = {}
    for core, piece in enumerate(slices):
        first = blocks.setdefault(cores.block(core, layout.axes, plan.mesh_shape), piece)
        np.testing.assert_array_equal(first, piece, err_msg=f"core {core} disagrees with another that holds its block")
    shape = [n * len({b[i] for b in blocks}) for i, n in enumerate(slices[0].shape)]
    whole = np.empty(shape, slices[0].dtype)
    for position, piece in blocks.items():
        whole[tuple(slice(p * n, (p + 1) * n) for p, n in zip(position, piece.shape, strict=True))] = piece
    return whole


def split(whole: np.ndarray, layout: TensorLayout, plan: Plan) -> list[np.ndarray]:
    """The slices of all cores of a whole array."""
    parts = layout.parts(plan.mesh_shape)
    sizes = [n // p for n, p in zip(whole.shape, parts, strict=True)]
    return [
        whole[tuple(slice(p * n, (p + 1) * n) for p, n in zip(position, sizes, strict=True))]
        for core in range(plan.mesh_shape.size)
        for position in [cores.block(core, layout.axes, plan.mesh_shape)]
    ]


def _as_sequence(result: object) -> Sequence[object]:
    return result if isinstance(result, list | tuple) else [result]
