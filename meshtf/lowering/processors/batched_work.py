"""Batches the work of several cores that share a memory: one kernel works on the rows of all of them.

Suppose that eight cores of a process each convolve two small images with the same filters. Reordering the filters for
the kernel takes longer than the convolution. The gradient of the filters is as large on each core as the sum over all
cores. So one kernel convolves sixteen images, and its gradient is the sum.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from meshtf.layout import Axes, axes_size
from meshtf.lowering.emit.core import TracedCore, known_coordinates
from meshtf.lowering.emit.plan_facts import PlanFacts, given_outwards
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.mesh_impl.spmd.shared_memory_collectives import CollectivesForAll, SlicesByCore
from meshtf.planning import core_positions
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.plan import Collective, Compute, Instruction, Value, walk
from meshtf.planning.process_spans import crossing_axes
from meshtf.thresholds import FEW_ROWS


class BatchedWork:
    """The work of a plan that is batched.

    Args:
      facts: facts of the plan.
      differing: the mesh axes along which its slices differ.
    """

    def __init__(self, facts: PlanFacts, differing: DifferingSlices) -> None:
        self._plan = facts.plan
        self._differing = differing
        self._axes: dict[Compute, Axes] = {}
        self._sums: dict[Value, Axes] = {}
        for instruction, _ in walk(facts.plan.instructions):
            if isinstance(instruction, Compute) and instruction not in facts.in_place:
                self._consider(instruction)

    def takes(self, instruction: Instruction) -> bool:
        """Whether the instruction is done for several cores at once."""
        return instruction in self._axes

    def run(self, instruction: Compute, held: Mapping[int, Mapping[Value, tf.Tensor]]) -> dict[int, tf.Tensor]:
        """Runs the work on the slices that the cores hold. Returns the result of each core."""
        rows = instruction.facts.rows
        assert rows is not None
        made: dict[int, tf.Tensor] = {}
        for by_rows in self._groups(instruction, held):
            # Several cores may hold the same rows. The first core's rows are used.
            cores = [alike[0] for alike in by_rows]
            given = [
                held[cores[0]][value] if dim is None else tf.concat([held[core][value] for core in cores], dim)
                for value, dim in zip(instruction.inputs, rows.inputs, strict=True)
            ]
            core = TracedCore(self._plan, known_coordinates(cores[0], self._plan), is_cpu=True)
            result = instruction.emit(core, *given)
            assert isinstance(result, tf.Tensor)
            parts = [result] * len(cores) if rows.output is None else tf.split(result, len(cores), rows.output)
            for alike, part in zip(by_rows, parts, strict=True):
                made |= dict.fromkeys(alike, part)
        return made

    def _groups(self, instruction: Compute, cores: Iterable[int]) -> list[list[list[int]]]:
        """The groups of cores that share one kernel. A group is a list of lists: the cores of an inner list hold the
        same rows."""
        mesh_shape, process_of_core = self._plan.mesh_shape, self._plan.process_of_core
        of_rows = self._axes[instruction]
        others = self._differing.in_order(self._differing.axes_of(instruction) - frozenset(of_rows))
        groups: dict[tuple[int, int], dict[int, list[int]]] = {}
        for core in cores:
            process = process_of_core[core] if process_of_core else 0
            by_rows = groups.setdefault((process, core_positions.position(core, others, mesh_shape)), {})
            by_rows.setdefault(core_positions.position(core, of_rows, mesh_shape), []).append(core)
        return [list(by_rows.values()) for by_rows in groups.values()]

    def rest_of_sum(
        self, collective: Collective, terms: SlicesByCore, collectives: CollectivesForAll
    ) -> SlicesByCore | None:
        """Sums terms over the axes along which kernels have not added them up yet.

        Returns:
          The result of each core, or None if the collective is not such a sum.
        """
        step = collective.step
        if collective.input not in self._sums or not isinstance(step, AllReduce | ReduceScatter):
            return None
        rest = tuple(axis for axis in step.axes if axis not in self._sums[collective.input])
        totals = collectives.all_reduce(terms, rest, "add") if rest else terms
        if isinstance(step, AllReduce):
            return totals
        positions = core_positions.positions(step.axes, self._plan.mesh_shape)
        count = axes_size(step.axes, self._plan.mesh_shape)
        blocks = {total.ref(): tf.split(total, count, step.split_dim) for total in totals.values()}
        return {core: blocks[total.ref()][positions[core]] for core, total in totals.items()}

    def _consider(self, instruction: Compute) -> None:
        rows = instruction.facts.rows
        if rows is None or not 0 < rows.count <= FEW_ROWS:
            return
        pairs = list(zip(instruction.inputs, rows.inputs, strict=True))
        axes = next(value.layout.axes[dim] for value, dim in pairs if dim is not None)
        alike = [self._differing.axes_of_value(value) for value, dim in pairs if dim is None]
        if not axes or any(own is None or not set(own).isdisjoint(axes) for own in alike):
            return
        if rows.output is None:
            (output,) = instruction.outputs
            if not self._is_summed_next(output, axes):
                return
            self._sums[output] = axes
        self._axes[instruction] = axes

    @functools.cached_property
    def _users(self) -> Mapping[Value, Sequence[Instruction | None]]:
        """The instructions that use each value, and None each time that it leaves a loop, a branch or the program."""
        plan, users = self._plan, collections.defaultdict[Value, list[Instruction | None]](list)
        for value in (*plan.fetches, *(check.value for check in plan.checks)):
            users[value].append(None)
        for instruction, _ in walk(plan.instructions):
            for value in instruction.inputs:
                users[value].append(instruction)
            for value in given_outwards(instruction):
                users[value].append(None)
        return users

    def _is_summed_next(self, value: Value, axes: Axes) -> bool:
        """Whether the only user of the value is a sum over these axes, within one process."""
        users = self._users[value]
        if len(users) != 1 or not isinstance(users[0], Collective):
            return False
        step = users[0].step
        return (
            isinstance(step, AllReduce | ReduceScatter)
            and step.reduction == "add"
            and not users[0].members
            and set(axes) <= set(step.axes)
            and not crossing_axes(step.axes, self._plan.mesh_shape, self._plan.process_of_core)
        )
