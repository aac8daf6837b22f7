"""The memory that a program needs on a core whose compiler fuses: XLA, on TPUs. It needs nothing but the plan.

Other meshes execute one kernel after the other, and `peak_memory` is for them. XLA makes the elements of a
chain of elementwise work where they are used. It writes the result of a fused pass over values whose last reader is
this pass. It also chooses an order of work that needs little memory. Therefore only the plan's own order is tried here.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from meshtf.lowering.report._fusion_chains import (
    WorkInMemory,
    is_fusable,
    is_product,
    moves_elements,
    shown_memory,
    size_in_products,
    work_in_memory,
)
from meshtf.lowering.report.accounting import stored_variables
from meshtf.lowering.report.memory._tiles import bytes_by_rows, tiled_bytes
from meshtf.lowering.report.memory.memory_owners import memory_owners
from meshtf.lowering.report.memory.peak_memory import PeakMemory
from meshtf.planning.plan import Branch, Compute, Instruction, Loop, Plan, ReadVariable, Value


def compiled_peak_memory(plan: Plan) -> PeakMemory:
    """Returns the same as `peak_memory`, for a program that XLA compiles.

    Counted:
    - the slices of all variables and the arrays fed, from beginning to end;
    - every value that some pass finds in memory, from where it is made to where it is read last, in tiles as on a TPU.

    Rules of XLA that the count follows:
    - A pass may do work for another pass as its first or last step. Then it reads the values that this work is made of.
    - If only products read a float32 value, it is written in bfloat16, which a TPU's units multiply.
    - A loop writes its stacks where they stay. A carried value enters an iteration in the memory of its result.
    - A loop holds a copy of each slice that it reads, as long as it needs the slice. If products and elementwise work
      both read it, there is a second copy in another order.
    - A loop may read weights slice by slice in a narrower dtype, in a cast or in a product. Then all of these weights
      are converted before the first such loop, and stay until the last. The same holds for stacks of a loop that only
      other loops read in this way.
    - Single elements are scattered over one row of memory, and the result is a copy of it.
    - An array that is packed into a vector, or cut out of one, lies by rows at that time.

    Not counted: other copies in other orders, a second copy of arrays in on-chip memory, masks that are broadcast
    before they are read, collectives' buffers, and gaps.
    """
    moments = _Moments.of_program(plan)
    peak = max(moments, key=lambda m: m.total, default=None)
    variables, feeds = _bytes(stored_variables(plan).values()), _bytes([f.output for f in plan.feeds])
    if peak is None or peak.total <= variables + feeds:
        return PeakMemory(variables + feeds, variables, feeds, None)
    return PeakMemory(peak.total, variables, feeds, peak.instruction.operation)


def largest_at_compiled_peak(plan: Plan, count: int) -> list[tuple[Value, str]]:
    """Returns the same as `largest_at_peak`, for a program that XLA compiles. Values inside of loops
    are left out.
    """
    names = {v: i.operation.name for i in plan.instructions for v in i.outputs}
    names.update({value: name for name, value in stored_variables(plan).items()})
    peak = max((m.total for m in _Moments.of_program(plan)), default=0)
    there = next((m.there for m in _Moments.of_program(plan) if m.total == peak), frozenset())
    largest = sorted(there, key=lambda value: (-tiled_bytes(value), value.index))[:count]
    return [(value, names[value]) for value in largest]


@dataclasses.dataclass(frozen=True, slots=True)
class _Moment:
    """Memory while an instruction runs: all memory in use, the values that existed before, and the values that it
    makes.

    `before` is valid until the next moment is computed.
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
    """The memory while the instructions of one list run.

    Attributes:
      leaving: the values that the instructions must compute.
      kept: the values whose memory is needed to the end.
      given: the values whose memory exists from the beginning.
      cut: slices of outside values, which have a copy while they are needed.
      owner: for each view, and each value written in place, the value that owns its memory.
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
        found = work_in_memory(self.instructions, self.leaving)
        needed, written = self._in_memory(found), {self._own(v) for v in found.written}
        last = {v: position for position, values in needed.items() for v in values}
        staying, cut, there = {self._own(v) for v in self.kept}, set(self.cut), set(self.given)
        live, sizes = _bytes(there), self._sizes(found)
        begins, ends = self._shortened()
        for position, values in needed.items():
            instruction = self.instructions[position]
            made = {v for v in values if v in written or v in cut} - there
            gone = {v for v in values if last[v] == position and (v in there or v in made)} - staying
            live += begins.get(position, 0)
            new, old = _bytes(made, sizes), _bytes(gone - made, sizes)
            written_over = min(new, old) if is_fusable(instruction) else 0
            yield _Moment(live + new - written_over + _inside(instruction), instruction, there, made)
            there |= made
            there -= gone
            live += new - _bytes(gone, sizes) - ends.get(position, 0)

    def _shortened(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Returns the bytes of weights in narrower dtypes, keyed by the positions of the first and of the last loop
        that reads them.
        """
        made = {v for i in self.instructions if not isinstance(i, ReadVariable) for v in i.outputs}
        first: dict[tuple[Value, int], int] = {}
        last: dict[tuple[Value, int], int] = {}
        for position, i in enumerate(self.instructions):
            if not isinstance(i, Loop):
                continue
            for s in i.sliced:
                short = _shorter(i.body, s.part)
                if short is not None and s.whole not in made:
                    copy = (self._own(s.whole), tiled_bytes(s.whole) * short // s.whole.dtype.size)
                    first.setdefault(copy, position)
                    last[copy] = position
        return _sums(first), _sums(last)

    def _sizes(self, found: WorkInMemory) -> Mapping[Value, int]:
        """Returns the bytes of the values that are stored in another dtype than their own, or not in the best order."""
        return {**self._by_rows(), **self._shortened_stacks(), **self._in_two_orders(), **self._for_products(found)}

    def _by_rows(self) -> Mapping[Value, int]:
        """Returns the bytes of values that are packed into a vector."""
        packs = [i for i in self.instructions if moves_elements(i) and len(i.outputs[0].slice_shape) == 1]
        return {self._own(v): bytes_by_rows(v) for i in packs for v in i.inputs}

    def _in_two_orders(self) -> Mapping[Value, int]:
        """Returns the bytes of slices that both products and other work read."""
        products = {v for i in self.instructions if is_product(i) for v in i.inputs}
        others = {v for i in self.instructions if not is_product(i) for v in i.inputs}
        return {v: 2 * tiled_bytes(v) for v in self.cut if v in products and v in others}

    def _for_products(self, found: WorkInMemory) -> Mapping[Value, int]:
        """Returns the bytes of values that are made here and read by products only."""
        others = {self._own(v) for v in (*self.leaving, *self.kept, *self.given, *self.cut)}
        for i, values in found.needed.items():
            operands = {self._own(v) for v in i.inputs} if is_product(i) else set()
            others.update({self._own(v) for v in values} - operands)
        makers = (i for i in self.instructions if is_product(i) or is_fusable(i))
        made = {self._own(v) for i in makers for v in i.outputs if v in found.written}
        return {v: tiled_bytes(v) * size_in_products(v.dtype) // v.dtype.size for v in made - others}

    def _shortened_stacks(self) -> Mapping[Value, int]:
        """Returns the bytes, in a narrower dtype, of stacks of loops that only other loops read."""
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
            # Every reader must be a loop that shortens what it reads. The widest of their types is kept.
            numbers = [short for short in shorts if short is not None]
            if len(numbers) == len(shorts) == len(users[whole]):
                found[whole] = tiled_bytes(whole) * max(numbers) // whole.dtype.size
        return found

    def _in_memory(self, found: WorkInMemory) -> dict[int, list[Value]]:
        """Returns the owners of the values that each instruction finds in memory or writes there, by its position."""
        return {
            position: [self._own(v) for v in (*found.needed[i], *(v for v in i.outputs if v in found.written))]
            for position, i in enumerate(self.instructions)
            if i in found.needed
        }

    def _own(self, value: Value) -> Value:
        return self.owner.get(value, value)


def _inside(instruction: Instruction) -> int:
    """Returns the most memory that an instruction, or one nested in it, needs beside its inputs and outputs."""
    if isinstance(instruction, Loop):
        entering = {c.entering for c in instruction.carried}
        kept = [c.leaving for c in instruction.carried]
        leaving, parts = [*kept, *(s.part for s in instruction.stacked)], [s.part for s in instruction.sliced]
        moments = _Moments(instruction.body, leaving, kept, entering, parts, shown_memory(instruction.body))
        asked = instruction.condition
        condition = 0 if asked is None else _beside(asked.instructions, [asked.goes_on])
        return max(_most(moments) - _bytes(entering), condition)
    if isinstance(instruction, Branch):
        bodies = (instruction.if_true, instruction.true_results), (instruction.if_false, instruction.false_results)
        return max(_beside(body, results) for body, results in bodies)
    if moves_elements(instruction) and len(instruction.inputs[0].slice_shape) == 1:
        # Arrays that are cut out of a vector lie by rows, one after the other.
        return max((bytes_by_rows(v) for v in instruction.outputs if len(v.slice_shape) > 1), default=0)
    if isinstance(instruction, Compute) and instruction.facts.scatters_elements:
        return _bytes(instruction.outputs)
    return 0


def _beside(instructions: Sequence[Instruction], results: Sequence[Value]) -> int:
    """Returns the most memory that a list of instructions needs beside the values from outside."""
    return _most(_Moments(instructions, results, results, (), (), shown_memory(instructions)))


def _shorter(body: Sequence[Instruction], part: Value) -> int | None:
    """Returns the bytes of each number as a body reads its slice, if that is shorter than the slice's own, else
    None.
    """
    sizes = set()
    for i in body:
        if part in i.inputs:
            is_cast = isinstance(i, Compute) and i.facts.is_cast
            read_as = i.outputs[0].dtype.size if is_cast else part.dtype.size
            sizes.add(size_in_products(part.dtype) if is_product(i) else read_as)
    return max(sizes) if sizes and max(sizes) < part.dtype.size else None


def _sums(positions: Mapping[tuple[Value, int], int]) -> Mapping[int, int]:
    found: collections.Counter[int] = collections.Counter()
    for (_, size), position in positions.items():
        found[position] += size
    return found


def _most(moments: Iterable[_Moment]) -> int:
    return max((m.total for m in moments), default=0)


def _bytes(values: Iterable[Value], sizes: Mapping[Value, int] | None = None) -> int:
    known = sizes or {}
    return sum(known[v] if v in known else tiled_bytes(v) for v in values)
