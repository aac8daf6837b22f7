"""Interprets plans: all cores run in lockstep in one thread, and collectives are array arithmetic.

It shares the plan and the local kernels with emission, but nothing of the collective runtime. So a mesh of any size can
be tried in one process with one device. Tests, `Tensor.eval` and the search for a failed slicewise use it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.errors import MeshtfError
from meshtf.layout import Axes
from meshtf.lowering.core_slices import assert_same, has_same_bits, joined, split
from meshtf.mesh_impl.host.bfloat16_products import product_dtype
from meshtf.planning import core_positions
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.local_work.long_sums import summed
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Check,
    Collective,
    Compute,
    Cut,
    Feed,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
)


class KnownCore:
    """A core whose coordinates are known. It records which coordinates local work reads (each read goes through
    `_answer`)."""

    def __init__(self, plan: Plan, core: int) -> None:
        self._plan = plan
        self._core = core
        self._positions: dict[Axes, int] = {}
        self.asked: dict[Axes, int] = {}

    def position(self, axes: Axes) -> int:
        if axes not in self._positions:  # needed for every value of a program
            self._positions[axes] = core_positions.position(self._core, axes, self._plan.mesh_shape)
        return self._positions[axes]

    def coordinate(self, axes: Axes) -> tf.Tensor:
        return tf.constant(self._answer(axes), tf.int32)

    def begin(self, rank: int, cuts: tuple[Cut, ...]) -> tf.Tensor:
        begin = [0] * rank
        for dim, axes, size in cuts:
            begin[dim] += self._answer(axes) * size
        return tf.constant(begin, tf.int32)

    def transposed(self, x: tf.Tensor, permutation: Sequence[int]) -> tf.Tensor:
        return tf.transpose(x, _integers(tuple(permutation)))

    def reshaped(self, x: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
        return x if x.shape.as_list() == list(size) else tf.reshape(x, _integers(tuple(size)))

    def product_dtype(self, dtype: tf.DType) -> tf.DType:
        return product_dtype(dtype)

    @property
    def convolves_bfloat16(self) -> bool:
        return False

    def multiplies_matrices(self, dtype: tf.DType) -> bool:
        return True

    def summed(self, x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
        return summed(x, axes)

    def _answer(self, axes: Axes) -> int:
        self.asked[axes] = self.position(axes)
        return self.asked[axes]


@functools.lru_cache(maxsize=1024)
def _integers(values: tuple[int, ...]) -> tf.Tensor:
    """int32 [values]. With a list, TensorFlow takes three times as long."""
    with tf.init_scope():
        return tf.constant(values, tf.int32)


class Interpreter:
    """Executes a plan on arrays.

    Local work is a function of a core's slices and of the coordinates that it reads. So cores with the same arrays and
    the same coordinates share one result. `variables` maps a variable's name to the slices of all cores. `run` replaces
    these slices.
    """

    def __init__(self, plan: Plan, variables: Mapping[str, Sequence[np.ndarray]] | None = None) -> None:
        self.plan = plan
        self.variables = {name: list(slices) for name, slices in (variables or {}).items()}
        self._cores = [KnownCore(plan, core) for core in range(plan.mesh_shape.size)]
        self._groups: dict[Axes, list[list[int]]] = {}

    def run(
        self,
        feeds: Mapping[str, np.ndarray],
        failure: Callable[[Check], MeshtfError] = lambda check: check.failure(),
    ) -> list[np.ndarray]:
        """Runs the plan, and returns the whole fetches. It fails if cores disagree on a value that should be equal.

        If a check failed, it assigns nothing, and raises the error that `failure` returns for the check.
        """
        if error := self.plan.refused_feed(feeds):
            raise error
        results, failed = self.outcome(feeds)
        if failed is not None:
            raise failure(failed)
        return results

    def outcome(self, feeds: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], Check | None]:
        """Runs the plan, and returns the whole fetches and the first failed check. If a check failed, nothing is
        assigned."""
        slices: dict[Value, list[np.ndarray]] = {}
        self._feeds = feeds
        self._tensors = _Tensors()
        self._execute([i for i in self.plan.instructions if not isinstance(i, AssignVariable)], slices)
        del self._tensors  # frees the memory of every value
        for check in self.plan.checks:
            flags = {bool(flag) for flag in slices[check.value]}
            assert len(flags) == 1, f"cores disagree on the check of {check.operation}"
        failed = next((c for c in self.plan.checks if not bool(slices[c.value][0])), None)
        if failed is None:
            self.variables.update({i.name: slices[i.input] for i in self.plan.assignments})
        wholes = [(joined(slices[v], v.layout, self.plan), v.shape.to_integer_list) for v in self.plan.fetches]
        return [whole[tuple(map(slice, sizes))] for whole, sizes in wholes], failed

    def _execute(self, instructions: Sequence[Instruction], slices: dict[Value, list[np.ndarray]]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Compute):
                slices.update(self._compute(instruction, slices))
            elif isinstance(instruction, Collective):
                with np.errstate(over="ignore", invalid="ignore"):  # as on devices
                    slices[instruction.output] = self.collective(instruction.step, slices[instruction.input])
            elif isinstance(instruction, Feed):
                fed, layout = np.asarray(self._feeds[instruction.name]), instruction.output.layout
                slices[instruction.output] = split(fed, layout, self.plan)
            elif isinstance(instruction, ReadVariable):
                slices[instruction.output] = self.variables[instruction.name]
            elif isinstance(instruction, Loop):
                self._loop(instruction, slices)
            elif isinstance(instruction, Branch):
                self._branch(instruction, slices)

    def _loop(self, loop: Loop, slices: dict[Value, list[np.ndarray]]) -> None:
        count = loop.length if loop.count is None else int(_alike(slices[loop.count], loop))
        carried = [slices[c.initial] for c in loop.carried]
        stacks: dict[int, list[list[np.ndarray]]] = {}
        turn = 0
        while turn < count and self._goes_on(loop, turn, carried, slices):
            index = count - 1 - turn if loop.is_reversed else turn
            # An iteration's values end with it, except those that it carries on or stacks.
            inner = dict(slices)
            inner[loop.index] = [np.asarray(index, np.int32)] * len(self._cores)
            inner.update(zip((c.entering for c in loop.carried), carried, strict=True))
            inner.update({s.part: _parts(slices[s.whole], index, s.dim) for s in loop.sliced})
            self._execute(loop.body, inner)
            carried = [inner[c.leaving] for c in loop.carried]
            stacks[index] = [inner[s.part] for s in loop.stacked]
            turn += 1
        slices.update(zip((c.result for c in loop.carried), carried, strict=True))
        slices[loop.trips] = [np.asarray(turn, np.int32)] * len(self._cores)
        for n, s in enumerate(loop.stacked):
            # A condition may end the loop early. The rows of a stack that no iteration made are zeros.
            absent = [np.zeros(s.part.slice_shape, s.part.dtype.as_numpy_dtype)] * len(self._cores)
            rows = [stacks[i][n] if i in stacks else absent for i in range(loop.length)]
            nothing = np.zeros(s.whole.slice_shape, s.whole.dtype.as_numpy_dtype)
            slices[s.whole] = _stacked(rows) if rows else [nothing] * len(self._cores)

    def _goes_on(
        self, loop: Loop, turn: int, carried: Sequence[list[np.ndarray]], slices: Mapping[Value, list[np.ndarray]]
    ) -> bool:
        if loop.condition is None:
            return True
        inner = {**slices, **dict(zip(loop.condition.entering, carried, strict=False))}
        inner[loop.index] = [np.asarray(turn, np.int32)] * len(self._cores)
        self._execute(loop.condition.instructions, inner)
        return bool(_alike(inner[loop.condition.goes_on], loop))

    def _branch(self, branch: Branch, slices: dict[Value, list[np.ndarray]]) -> None:
        taken = bool(_alike(slices[branch.predicate], branch))
        inner = dict(slices)
        self._execute(branch.if_true if taken else branch.if_false, inner)
        results = branch.true_results if taken else branch.false_results
        slices.update({value: inner[own] for value, own in zip(branch.results, results, strict=True)})

    @property
    def _range(self) -> range:
        return range(len(self._cores))

    def _compute(self, instruction: Compute, slices: Mapping[Value, list[np.ndarray]]) -> dict[Value, list[np.ndarray]]:
        results: dict[Value, list[np.ndarray]] = {v: [] for v in instruction.outputs}
        inputs_of_cores = [[slices[v][number] for v in instruction.inputs] for number in self._range]
        done: dict[tuple[int, ...], list[_Done]] = {}  # keyed by the identities of the inputs
        for core, inputs in zip(self._cores, inputs_of_cores, strict=True):
            alike = done.setdefault(tuple(map(id, inputs)), [])
            same = next((d for d in alike if d.applies_to(core)), None)
            if same is None:
                core.asked = {}
                emitted = instruction.emit(core, *map(self._tensors.of, inputs))
                same = _Done(core.asked, [self._tensors.array(y) for y in _as_sequence(emitted)])
                alike.append(same)
            for value, array in zip(instruction.outputs, same.outputs, strict=True):
                results[value].append(array)
        return {
            value: arrays if value in self.plan.unreduced else self._checked(instruction, value, arrays)
            for value, arrays in results.items()
        }

    def _checked(self, instruction: Compute, value: Value, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Asserts that shapes and dtypes are as planned, and that cores which should hold equal slices do so.

        Cores whose slices have the same bits get one array, so that they share the work that follows.
        """
        first: dict[tuple[int, ...], np.ndarray] = {}
        checked: list[np.ndarray] = []
        dtype = value.dtype.as_numpy_dtype
        for core, array in zip(self._cores, arrays, strict=True):
            assert array.shape == value.slice_shape, (instruction.operation, array.shape, str(value))
            assert array.dtype == dtype, (instruction.operation, array.dtype, str(value))
            where = (*map(core.position, value.layout.axes), core.position(value.pending))
            same = first.setdefault(where, array)
            if same is not array and not has_same_bits(same, array):
                assert_same(same, array, f"cores disagree on {value} of {instruction.operation}")
                same = array
            checked.append(same)
        return checked

    def collective(self, step: CollectiveStep, slices: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The slice that each core holds after a collective."""
        return step.interpret(slices, self._groups_over(step.axes))

    def _groups_over(self, axes: Axes) -> list[list[int]]:
        """The groups of cores that differ along `axes` only, each in order of the position along `axes`."""
        if axes not in self._groups:
            groups: dict[tuple[int, ...], list[int]] = {}
            others = tuple(name for name in self.plan.mesh_shape.dimension_names if name not in axes)
            for number, core in enumerate(self._cores):
                groups.setdefault(tuple(core.position((a,)) for a in others), []).append(number)
            self._groups[axes] = [sorted(g, key=lambda c: self._cores[c].position(axes)) for g in groups.values()]
        return self._groups[axes]


class _Tensors:
    """The tensors of arrays. Each is made once, and an array that came from a tensor keeps that tensor."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[np.ndarray, tf.Tensor]] = {}  # keyed by the array's identity, valid while it lives

    def of(self, array: np.ndarray) -> tf.Tensor:
        if id(array) not in self._known:
            self._known[id(array)] = array, tf.constant(array)
        return self._known[id(array)][1]

    def array(self, result: Any) -> np.ndarray:
        if not isinstance(result, tf.Tensor):
            return np.asarray(result)
        array = result.numpy()  # np.asarray could not convert a bfloat16 scalar
        if isinstance(array, np.ndarray):
            self._known[id(array)] = array, result
        return np.asarray(array)


@dataclasses.dataclass(frozen=True)
class _Done:
    """Local work of one core on some arrays: after which answers about itself, with which results."""

    asked: Mapping[Axes, int]
    outputs: Sequence[np.ndarray]

    def applies_to(self, core: KnownCore) -> bool:
        return all(core.position(axes) == answer for axes, answer in self.asked.items())


def _part(x: np.ndarray, index: int, dim: int) -> np.ndarray:
    """The slice at one index of a dimension, without that dimension. (`np.take` of bfloat16 may crash.)"""
    where = (slice(None),) * dim
    return x[(*where, slice(index, index + 1))].reshape(x.shape[:dim] + x.shape[dim + 1 :])


def _parts(slices: Sequence[np.ndarray], index: int, dim: int) -> list[np.ndarray]:
    """The part of each core. Cores with the same array share its part."""
    distinct = {id(x): x for x in slices}
    parts = {key: _part(x, index, dim) for key, x in distinct.items()}
    return [parts[id(x)] for x in slices]


def _stacked(rows: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """The stack of each core's rows. Cores with the same rows share it."""
    stacks: dict[tuple[int, ...], np.ndarray] = {}
    columns = [(tuple(map(id, column)), column) for column in zip(*rows, strict=True)]
    for key, column in columns:
        if key not in stacks:
            stacks[key] = np.stack(column)
    return [stacks[key] for key, _ in columns]


def _alike(arrays: Sequence[np.ndarray], instruction: Loop | Branch) -> np.ndarray:
    """The one value that every core must hold."""
    for array in arrays:
        assert_same(arrays[0], array, f"cores disagree in {instruction.operation}")
    return arrays[0]


def _as_sequence(result: object) -> Sequence[object]:
    return result if isinstance(result, list | tuple) else [result]
