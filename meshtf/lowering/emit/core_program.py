"""Emits a plan's instructions as TensorFlow operations of one core, in a function that is being traced.

`CoreProgram.slices` holds this core's tensor of each value. For y = relu(einsum(x, w)), with a contraction over cores:

    Feed x               slices[x] = an argument of the function
    ReadVariable w       slices[w] = a read of the variable's slice
    Compute einsum       slices[p] = tf.matmul(slices[x], slices[w])       a term of the sum
    Collective           slices[s] = the sum of the terms of all cores
    Compute relu         slices[y] = tf.nn.relu(slices[s])

`_EMITTERS`, at the end of the file, has one method for each kind of instruction.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import tensorflow as tf

from meshtf.lowering.emit.control_flow import Tensors, emit_branch, emit_loop
from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.feeds_and_fetches import NO_CHECK_FAILED
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.scopes import scope_name
from meshtf.lowering.emit.variable_slices import VariableSlices
from meshtf.lowering.passes.updates.update_fusion import FusedUpdate
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Collective,
    Compute,
    Feed,
    Instruction,
    Loop,
    ReadVariable,
    Sliced,
    Stacked,
    Value,
)


def _compute(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> Any:
    return instruction.emit(core, *slices)


@dataclasses.dataclass(frozen=True)
class LocalWork:
    """How a core does its local work: by default, each instruction with TensorFlow's documented operations.

    Hardware with a better way passes other functions.

    Attributes:
      compute: emits local work, and returns the slice, or the slices, of its outputs.
      loop: emits a loop into a program, which holds its results afterwards.
    """

    compute: Callable[[TracedCore, Compute, Sequence[tf.Tensor]], Any] = _compute
    loop: Callable[[CoreProgram, Loop], None] = emit_loop


PLAIN_WORK = LocalWork()


@final
class CoreProgram:
    """Emits instructions of a plan for one core. It is the `Scope` of control flow in which a value has one tensor.

    Args:
      facts: facts of the plan.
      core: the core that does the work.
      collectives: the core's collectives in this function.
      variables: the core's slices of the program's variables.
      work: how local work is done.
      may_assign: a bool scalar; if it is false, every check fails, because a check failed in an earlier step. None if
        there is no earlier step.
      in_parts: values whose parts along the first dimension a compiled loop carries, one tensor each.

    Attributes:
      slices: the core's slice of each value that has been made.
    """

    def __init__(
        self,
        facts: PlanFacts,
        core: TracedCore,
        collectives: BackendCollectives,
        variables: VariableSlices,
        work: LocalWork = PLAIN_WORK,
        may_assign: tf.Tensor | None = None,
        in_parts: frozenset[Value] = frozenset(),
    ) -> None:
        self.slices: dict[Value, tf.Tensor] = {}
        self._parts: dict[Value, Tensors] = {}
        """Values that are also held in parts along their first dimension. XLA removes the whole if nothing reads it."""
        self._stacks: dict[Value, tf.TensorArray] = {}
        """Stacks of loops that only loops read. They are not joined, because each would then be in memory twice."""
        self._in_parts = in_parts
        self._facts = facts
        self._core = core
        self._collectives = collectives
        self._variables = variables
        self._work = work
        self._may_assign = may_assign
        self._checked = frozenset(check.value for check in facts.plan.checks)
        self._feeds: Mapping[str, tf.Tensor] = {}
        self._last_update: list[tf.Operation] = []

    def run(self, feeds: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Emits the whole plan. Returns the slices of the fetches and the index of the first failed check, or -1."""
        self.emit_part(self._facts.plan.instructions, feeds)
        return self.finish()

    def emit_part(self, instructions: Sequence[Instruction], feeds: Mapping[str, tf.Tensor]) -> None:
        """Emits a part of the plan in order. Assignments at the end of the program wait for `finish`."""
        self._feeds = feeds
        # Updates in place read these variables themselves. A read here would keep the old memory until the end.
        unread = self._facts.unread
        self.emit([i for i in instructions if not isinstance(i, AssignVariable) and unread.isdisjoint(i.outputs)])

    def finish(self) -> list[tf.Tensor]:
        """Assigns variables. Returns the slices of the fetches and the index of the first failed check, or -1."""
        assignments = self._facts.late_assignments
        failed = self._first_failed_check()
        if assignments:
            succeeded = tf.equal(failed, NO_CHECK_FAILED) if self._facts.plan.checks else None
            self._variables.commit(lambda: self.emit(assignments), succeeded)
        return [*(tf.identity(self.slices[v]) for v in self._facts.plan.fetches), failed]

    def emit(self, instructions: Sequence[Instruction], results: Sequence[Value] = ()) -> None:
        for instruction in instructions:
            scope = scope_name(self._facts.numbers[instruction], instruction)
            # Values of earlier functions exist already, so only values of this function are awaited.
            awaited = [self.slices[v] for v in self._facts.awaited_by(instruction) if v in self.slices]
            with tf.name_scope(scope), tf.control_dependencies(awaited):
                _EMITTERS[type(instruction)](self, instruction)
            for value in instruction.outputs:
                if value in self.slices:
                    self.slices[value].set_shape(value.slice_shape)
                if value in self._checked and self._may_assign is not None:
                    self.slices[value] = tf.logical_and(self.slices[value], self._may_assign)

    def inside(self) -> CoreProgram:
        inner = copy.copy(self)
        inner._core = self._core.inside()
        # Copies, since a tensor that is made inside a loop's function cannot be used outside of it.
        inner.slices, inner._parts, inner._stacks = dict(self.slices), dict(self._parts), dict(self._stacks)
        inner._last_update = []
        return inner

    def compiled(self, given: Mapping[Value, Tensors], in_parts: frozenset[Value], work: LocalWork) -> CoreProgram:
        """Makes this program's counterpart inside a function that XLA compiles.

        Args:
          given: the values that the function receives. It has no others.
          in_parts: values that are received, or carried by a loop, in parts along their first dimension.
          work: how local work is done there.
        """
        inner = self.inside()
        inner._core = self._core.inside(is_cpu=False)
        inner._work = work
        inner.slices, inner._parts, inner._stacks, inner._in_parts = {}, {}, {}, in_parts
        for value, tensors in given.items():
            inner.give(value, tensors, value)
        return inner

    def read_of(self, loop: Loop) -> list[Value]:
        """The results of a loop that something reads. The final value of a carried value may be unread."""
        return [v for v in loop.outputs if v in self._facts.read]

    def number(self, value: Value) -> tf.Tensor:
        return self.slices[value]

    def give_number(self, value: Value, number: tf.Tensor) -> None:
        self.slices[value] = number

    def count(self, like: Value) -> int:
        return 1

    def tensors(self, value: Value, like: Value) -> Tensors:
        if like in self._in_parts:
            return self.parts(value)
        return [self._whole(value)]

    def give(self, value: Value, tensors: Sequence[tf.Tensor], like: Value) -> None:
        if like in self._in_parts:
            self.give_parts(value, tensors)
        else:
            (self.slices[value],) = tensors

    def rows(self, sliced: Sliced, index: tf.Tensor) -> Tensors:
        if sliced.whole in self._stacks:
            return [self._stacks[sliced.whole].read(index)]
        return [tf.gather(self.slices[sliced.whole], index, axis=sliced.dim)]

    def give_stacks(self, stacked: Stacked, stacks: Sequence[tf.TensorArray]) -> None:
        (stack,) = stacks
        if stacked.whole in self._facts.only_sliced:
            self._stacks[stacked.whole] = stack
        else:
            self.slices[stacked.whole] = stack.stack()

    def parts(self, value: Value) -> Tensors:
        """The parts of a value along its first dimension."""
        if value in self._parts:
            return self._parts[value]
        return tf.unstack(self._whole(value))

    def give_parts(self, value: Value, parts: Sequence[tf.Tensor]) -> None:
        """Sets a value that consists of these parts along its first dimension."""
        self._parts[value] = list(parts)
        self.slices[value] = tf.stack(parts)

    def _whole(self, value: Value) -> tf.Tensor:
        return self._stacks[value].stack() if value in self._stacks else self.slices[value]

    def _compute(self, instruction: Compute) -> None:
        if instruction in self._facts.in_place:
            return self._update(instruction)
        results = self._work.compute(self._core, instruction, [self.slices[v] for v in instruction.inputs])
        self.slices.update(
            zip(instruction.outputs, results if isinstance(results, list | tuple) else [results], strict=True)
        )

    def _update(self, instruction: Compute) -> None:
        """Assigns the new values of variables as soon as a fused update has computed them.

        Updates run one after the other, so that the intermediate values of only one update are in memory at a time.
        """
        update, pairs = instruction.emit, self._facts.in_place[instruction]
        assert isinstance(update, FusedUpdate | RowUpdate)
        with tf.control_dependencies(self._last_update):
            old = {n: self._variables.read(name, instruction.inputs[n].dtype) for n, (_, name) in pairs.items()}
            for n, x in old.items():
                x.set_shape(instruction.inputs[n].slice_shape)  # a handle may lack the static shape
            given = [old[n] if n in old else self.slices[v] for n, v in enumerate(instruction.inputs)]
            results = update(self._core, *given)
            # An update of rows itself keeps the rows if a check fails.
            guards = given[update.num_inputs :] if isinstance(update, FusedUpdate) else []
            new = {n: results[result] for n, (result, _) in pairs.items()}
            if guards:  # a failed check leaves the old value, which is written again
                is_kept = tf.reduce_all(guards)
                new = {n: tf.where(is_kept, x, old[n]) for n, x in new.items()}
            self._last_update = [op for n, (_, name) in pairs.items() for op in self._variables.assign(name, new[n])]
        assigned = {result for result, _ in pairs.values()}
        self.slices.update((v, results[n]) for n, v in enumerate(instruction.outputs) if n not in assigned)

    def _collective(self, instruction: Collective) -> None:
        self.slices[instruction.output] = instruction.step.emit(self._collectives, self.slices[instruction.input])

    def _feed(self, instruction: Feed) -> None:
        self.slices[instruction.output] = self._feeds[instruction.name]

    def _read(self, instruction: ReadVariable) -> None:
        self.slices[instruction.output] = self._variables.read(instruction.name, instruction.output.dtype)

    def _assign(self, instruction: AssignVariable) -> None:
        is_guarded = instruction.name in self._facts.guarded
        self._variables.assign(instruction.name, self.slices[instruction.input], is_guarded=is_guarded)

    def _loop(self, loop: Loop) -> None:
        self._work.loop(self, loop)

    def _branch(self, branch: Branch) -> None:
        emit_branch(self, branch)

    def _first_failed_check(self) -> tf.Tensor:
        failed = tf.constant(NO_CHECK_FAILED)
        # Backwards, so that the first check in program order is the last to overwrite the index.
        for index, check in reversed(list(enumerate(self._facts.plan.checks))):
            failed = tf.where(self.slices[check.value], failed, index)
        return failed


_EMITTERS: dict[type, Callable[[CoreProgram, Any], None]] = {
    Compute: CoreProgram._compute,
    Collective: CoreProgram._collective,
    Feed: CoreProgram._feed,
    ReadVariable: CoreProgram._read,
    AssignVariable: CoreProgram._assign,
    Loop: CoreProgram._loop,
    Branch: CoreProgram._branch,
}
