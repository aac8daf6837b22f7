"""The memory that a program needs on a core whose compiler fuses: XLA, on TPUs. From the plan alone.

Other meshes execute one kernel after the other, and `accounting.peak_memory` is for them. XLA makes the elements of a
chain of elementwise work where they are used; writes what a fused pass makes over what it read last; and chooses an
order of work that needs little memory, so that the plan's own order is looked at and no other.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

import tensorflow as tf

from meshtf.lowering.report._fusion_chains import is_fusable, shown_memory, work_in_memory
from meshtf.lowering.report.accounting import PeakMemory, memory_owners, stored_variables, variable_bytes
from meshtf.planning.plan import Branch, Compute, Instruction, Loop, Plan, ReadVariable, Value


def compiled_peak_memory(plan: Plan) -> PeakMemory:
    """As `accounting.peak_memory`, of a program that XLA compiles.

    Counted: the slices of all variables and the arrays fed, from beginning to end; of every value that some pass finds
    in memory, its bytes from where it is made to where it is read last. Work that a pass does for another, as its first
    or last step, reads for it what it is made of. A loop writes what it stacks where it stays, holds a copy of each
    slice that it reads while it needs it, and what it carries enters an iteration where its result will be. Weights
    that a loop reads slice by slice as shorter numbers, in a cast or in a product (of float32 a TPU's units multiply
    bfloat16), are all brought to them before the first such loop, and stay so to the last; and so is what one
    loop stacks and others alone read in that way. Single elements are scattered over one row of memory, of which the
    result is a copy.

    Not counted: copies in other layouts and in on-chip memory, tiles that are not full, collectives' buffers, and gaps.
    """
    moments = _Moments.of_program(plan)
    peak = max(moments, key=lambda m: m.total, default=None)
    variables, feeds = variable_bytes(plan), sum(f.output.slice_bytes for f in plan.feeds)
    if peak is None or peak.total <= variables + feeds:
        return PeakMemory(variables + feeds, variables, feeds, None)
    return PeakMemory(peak.total, variables, feeds, peak.instruction.operation)


def largest_at_compiled_peak(plan: Plan, count: int) -> list[tuple[Value, str]]:
    """As `accounting.largest_at_peak`, of a program that XLA compiles: of what stands in no loop."""
    names = {v: i.operation.name for i in plan.instructions for v in i.outputs}
    names.update({value: name for name, value in stored_variables(plan).items()})
    peak = max((m.total for m in _Moments.of_program(plan)), default=0)
    there = next((m.there for m in _Moments.of_program(plan) if m.total == peak), frozenset())
    largest = sorted(there, key=lambda value: (-value.slice_bytes, value.index))[:count]
    return [(value, names[value]) for value in largest]


@dataclasses.dataclass(frozen=True, slots=True)
class _Moment:
    """While an instruction runs: all memory in use, and the values in it: those there before, and those made.

    What was there before is known until the next moment is asked for.
    """

    total: int
    instruction: Instruction
    before: Set[Value]
    made: Set[Value]

    @property
    def there(self) -> Set[Value]:
        return self.before | self.made


@dataclasses.dataclass(frozen=True)
class _Moments:
    """What is in memory while instructions run that stand in one list.

    Attributes:
      leaving: values for which the instructions are there.
      kept: those whose memory is needed to the end.
      given: those whose memory is there from the beginning.
      cut: slices of what is there outside, of which there is a copy while they are needed.
      owner: of views and of what is written in place, the value whose memory it is.
    """

    instructions: Sequence[Instruction]
    leaving: Sequence[Value]
    kept: Iterable[Value]
    given: Collection[Value]
    cut: Collection[Value]
    owner: Mapping[Value, Value]

    @classmethod
    def of_program(cls, plan: Plan) -> Iterator[_Moment]:
        standing = {*stored_variables(plan).values(), *(f.output for f in plan.feeds)}
        leaving = [*plan.fetches, *(c.value for c in plan.checks), *(i.input for i in plan.assignments)]
        kept = [*standing, *leaving]
        return iter(cls(plan.instructions, leaving, kept, standing, (), memory_owners(plan)))

    def __iter__(self) -> Iterator[_Moment]:
        needed, written = self._in_memory()
        last = {v: position for position, values in needed.items() for v in values}
        staying, cut, there = {self._own(v) for v in self.kept}, set(self.cut), set(self.given)
        live = sum(v.slice_bytes for v in there)
        begins, ends = self._shortened()
        saved = self._saved()
        for position, values in needed.items():
            instruction = self.instructions[position]
            made = {v for v in values if v in written or v in cut} - there
            gone = {v for v in values if last[v] == position and (v in there or v in made)} - staying
            live += begins.get(position, 0)
            new, old = _bytes(made, saved), _bytes(gone - made, saved)
            written_over = min(new, old) if is_fusable(instruction) else 0
            yield _Moment(live + new - written_over + _inside(instruction), instruction, there, made)
            there |= made
            there -= gone
            live += new - _bytes(gone, saved) - ends.get(position, 0)

    def _shortened(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Bytes of weights as shorter numbers, by the positions of the first loop and of the last that read them."""
        made = {v for i in self.instructions if not isinstance(i, ReadVariable) for v in i.outputs}
        first: dict[tuple[Value, int], int] = {}
        last: dict[tuple[Value, int], int] = {}
        for position, i in enumerate(self.instructions):
            if not isinstance(i, Loop):
                continue
            for s in i.sliced:
                short = _shorter(i.body, s.part)
                if short is not None and s.whole not in made:
                    copy = (self._own(s.whole), s.whole.slice_bytes * short // s.whole.dtype.size)
                    first.setdefault(copy, position)
                    last[copy] = position
        return _sums(first), _sums(last)

    def _saved(self) -> Mapping[Value, int]:
        """Bytes by which what loops stack is shorter than it says, as other loops alone read it so."""
        users: dict[Value, list[Instruction]] = {}
        for i in self.instructions:
            for v in i.inputs:
                users.setdefault(v, []).append(i)
        found: dict[Value, int] = {}
        stacked = {s.whole for i in self.instructions if isinstance(i, Loop) for s in i.stacked} - set(self.leaving)
        for whole in stacked & users.keys():
            shorts = [
                _shorter(i.body, s.part)
                for i in users[whole]
                if isinstance(i, Loop)
                for s in i.sliced
                if s.whole is whole
            ]
            numbers = [short for short in shorts if short is not None]
            if len(numbers) == len(shorts) == len(users[whole]):
                found[whole] = whole.slice_bytes - whole.slice_bytes * max(numbers) // whole.dtype.size
        return found

    def _in_memory(self) -> tuple[dict[int, list[Value]], set[Value]]:
        """By position, what an instruction finds in memory or writes there; and what is ever written. All by owner."""
        found = work_in_memory(self.instructions, self.leaving)
        needed = {
            position: [self._own(v) for v in (*found.needed[i], *(v for v in i.outputs if v in found.written))]
            for position, i in enumerate(self.instructions)
            if i in found.needed
        }
        return needed, {self._own(v) for v in found.written}

    def _own(self, value: Value) -> Value:
        return self.owner.get(value, value)


def _inside(instruction: Instruction) -> int:
    """Beside its inputs and outputs, the most that an instruction needs, or those nested in it."""
    if isinstance(instruction, Loop):
        entering = {c.entering for c in instruction.carried}
        kept = [c.leaving for c in instruction.carried]
        leaving, parts = [*kept, *(s.part for s in instruction.stacked)], [s.part for s in instruction.sliced]
        moments = _Moments(instruction.body, leaving, kept, entering, parts, shown_memory(instruction.body))
        return max(_most(moments) - _bytes(entering), 0)
    if isinstance(instruction, Branch):
        bodies = (instruction.if_true, instruction.true_results), (instruction.if_false, instruction.false_results)
        return max(_most(_Moments(body, results, results, (), (), shown_memory(body))) for body, results in bodies)
    if isinstance(instruction, Compute) and instruction.facts.scatters_elements:
        return _bytes(instruction.outputs)
    return 0


def _shorter(body: Sequence[Instruction], part: Value) -> int | None:
    """The bytes of each number as which a body reads its slice, where that is shorter than it is."""
    sizes = set()
    for i in body:
        if part in i.inputs:
            is_product = isinstance(i, Compute) and bool(i.facts.products) and part.dtype == tf.float32
            is_cast = isinstance(i, Compute) and i.facts.is_cast
            sizes.add(tf.bfloat16.size if is_product else i.outputs[0].dtype.size if is_cast else part.dtype.size)
    return max(sizes) if sizes and max(sizes) < part.dtype.size else None


def _sums(positions: Mapping[tuple[Value, int], int]) -> Mapping[int, int]:
    found: collections.Counter[int] = collections.Counter()
    for (_, size), position in positions.items():
        found[position] += size
    return found


def _most(moments: Iterable[_Moment]) -> int:
    return max((m.total for m in moments), default=0)


def _bytes(values: Collection[Value], saved: Mapping[Value, int] | None = None) -> int:
    return sum(v.slice_bytes for v in values) - sum((saved or {}).get(v, 0) for v in values)
