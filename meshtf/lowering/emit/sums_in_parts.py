"""Sums that loops add to part by part, as arrays of the parts, on processors.

In one tensor a part is read, added to a term, and written back, in which TensorFlow's kernels go over a megabyte three
times. A `TensorArray` that aggregates adds in the memory of its part, in one. Nothing else may hold that memory: a
tensor that loops and functions carry around is held by each caller, too.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, cast

import numpy as np
import tensorflow as tf

from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.plan import Carried, Compute, Instruction, Loop, Plan, Value, nested, used_directly, walk

_Final = TypeVar("_Final", bound=tf.Tensor | list[tf.Tensor])
HANDLE_SPEC = tf.TensorSpec([2], tf.resource)
"""Of an array of parts: TensorFlow says two of what is a scalar when the program runs."""


@dataclasses.dataclass(frozen=True, eq=False)
class SumsInParts:
    """Of a plan.

    Attributes:
      additions: how is added to it, by each value that stands for a sum: an array of parts, and not a slice.
      zeros: what they begin as, which is not made.
      wholes: the slices that they become, where the outermost loop ends.
    """

    additions: Mapping[Value, AddToPart] = dataclasses.field(default_factory=dict)
    zeros: frozenset[Value] = frozenset()
    wholes: frozenset[Value] = frozenset()

    @classmethod
    def of(cls, plan: Plan) -> SumsInParts:
        """Sums that begin as zeros, and that nothing but additions to one piece of memory uses inside of loops."""
        uses = collections.Counter(v for i, _ in walk(plan.instructions) for v in used_directly(i))
        uses.update([*plan.fetches, *(c.value for c in plan.checks)])
        makers = {v: i for i, _ in walk(plan.instructions) for v in i.outputs}
        additions: dict[Value, AddToPart] = {}
        begun: set[Value] = set()
        wholes: set[Value] = set()
        for loop in _loops_op_by_op(plan.instructions):
            for carried in loop.carried:
                zeros = makers.get(carried.initial)
                if not isinstance(zeros, Compute) or not isinstance(zeros.emit, Zeros) or uses[carried.initial] != 1:
                    continue
                if (found := _chain(loop, carried, uses)) is not None:
                    addition, values = found
                    additions.update(dict.fromkeys([carried.initial, *values], addition))
                    begun.add(carried.initial)
                    wholes.add(carried.result)
        return cls(additions, frozenset(begun), frozenset(wholes))

    def initial_of(self, carried: Carried, slices: Mapping[Value, tf.Tensor]) -> tf.Tensor:
        """What a loop begins with: its slice, or of a sum the handle of an array of parts, zeros with nothing added."""
        if carried.initial not in self.zeros:
            return slices[carried.initial]
        addition, dtype = self.additions[carried.initial], carried.initial.dtype
        array, flow = tf.raw_ops.TensorArrayV3(size=addition.num_parts, dtype=dtype, element_shape=addition.row_size)
        sums, _ = tf.raw_ops.TensorArrayGradV3(handle=array, flow_in=flow, source="sums")  # it aggregates
        return sums

    def results_of(
        self, loop: Loop, finals: Sequence[tf.Tensor | list[tf.Tensor]]
    ) -> dict[Value, tf.Tensor | list[tf.Tensor]]:
        """What a loop has carried to its end, by result; of sums that end with it the slices."""
        return {c.result: self.result_of(c, final) for c, final in zip(loop.carried, finals, strict=True)}

    def result_of(self, carried: Carried, final: _Final) -> _Final:
        """What one of them is."""
        return self._whole(carried, cast("tf.Tensor", final)) if carried.result in self.wholes else final

    def _whole(self, carried: Carried, sums: tf.Tensor) -> tf.Tensor:
        addition = self.additions[carried.initial]
        parts = tf.raw_ops.TensorArrayGatherV3(
            handle=sums,
            indices=np.arange(addition.num_parts, dtype=np.int32),
            flow_in=tf.constant(0.0),
            dtype=carried.result.dtype,
            element_shape=addition.row_size,
        )
        with tf.control_dependencies([parts]):
            tf.raw_ops.TensorArrayCloseV3(handle=sums)  # it would stay until the step ends, of each turn of a loop
        return tf.reshape(parts, addition.size)


def _loops_op_by_op(instructions: Sequence[Instruction]) -> Iterator[Loop]:
    """All but those that ask to be compiled, and what is in them."""
    for instruction in instructions:
        if isinstance(instruction, Loop) and instruction.compilation is not None:
            continue
        if isinstance(instruction, Loop):
            yield instruction
        yield from _loops_op_by_op(nested(instruction))


def _chain(loop: Loop, carried: Carried, uses: Mapping[Value, int]) -> tuple[AddToPart, list[Value]] | None:
    """The one addition to what a loop carries, in it or in loops inside of it, and what stands for the sum there."""
    users = [i for i in loop.body if carried.entering in used_directly(i)]
    if loop.compilation is not None or loop.condition is not None or uses[carried.entering] != 1 or len(users) != 1:
        return None
    own = [carried.entering, carried.leaving]
    (user,) = users
    if isinstance(user, Loop):
        inner = next((c for c in user.carried if c.initial is carried.entering), None)
        if inner is None or inner.result is not carried.leaving:
            return None
        found = _chain(user, inner, uses)
        return None if found is None else (found[0], [*own, *found[1]])
    if not isinstance(user, Compute) or not isinstance(user.emit, AddToPart) or user.emit.num_rows != 1:
        return None
    is_next = user.outputs == (carried.leaving,) and user.inputs[0] is carried.entering
    return (user.emit, own) if is_next and uses[carried.leaving] == 1 else None


def with_added(sums: tf.Tensor, addition: AddToPart, term: tf.Tensor, *positions: tf.Tensor) -> tf.Tensor:
    """The handle of the sums, after a term has been added."""
    rows, term = addition.rows_and_term(positions, term)
    index, value = tf.reshape(rows, []), tf.reshape(term, addition.row_size)
    written = tf.raw_ops.TensorArrayWriteV3(handle=sums, index=index, value=value, flow_in=tf.constant(0.0))
    with tf.control_dependencies([written]):
        return tf.identity(sums)
