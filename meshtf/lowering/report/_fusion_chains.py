"""Chains of elementwise work that a fusing compiler does in one pass over memory, and the bytes of each pass.

For (a = x * 2, b = a + 1, s = sum(b)), one pass reads x and writes only s. One by one, the three kernels move x, a
twice, b twice and s through memory. A pass ends where a value must be complete first. After a sum has summed its input,
the next work reads this input again, as XLA's fusions do. So a normalization takes one pass for the statistics and one
for the result.

Some values can be made again from no more bytes than they have, for example a cast of a smaller type. They are not
written for other passes: each pass makes them. A product of matrices does so too, unless so many products read the
value that writing it moves fewer bytes. If only elementwise work reads a product, it is done while the product is
written. A TPU's compiler does this. On a GPU a product is a kernel of a library, which reads its operands from memory
and writes its result there. So each pass has its bytes for both.

If recomputation reads a value, it waits until other values are there. No pass reaches from one side of such a wait to
the other. So the value is written.

The algorithm joins each work with the work that makes its inputs, if both need equally many passes before them. Then
each chain reads the values that it needs from memory, and writes the values that others need there.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set

import tensorflow as tf

from meshtf.planning.plan import Compute, Instruction, Plan, Value, nested, used_directly

_MADE_ONCE = frozenset([tf.sin, tf.cos])
"""Kernels for which a TPU has no unit. Unlike an exponential, they take tens of operations for each element."""

_MADE_AGAIN = 1.125
"""A pass makes a value again if it reads at most this many times the value's own bytes, such as a tensor and a
statistic."""


@dataclasses.dataclass(frozen=True, slots=True)
class FusedWork:
    """Local work in its chain.

    Attributes:
      chain: the chain's number.
      chain_length: how many instructions the chain has.
      bytes_read: the bytes that the chain reads for this work.
      bytes_written: the bytes that the chain writes for this work.
      bytes_beside_products: the bytes that it reads and writes if products are kernels of their own.
    """

    chain: int
    chain_length: int
    bytes_read: int
    bytes_written: int
    bytes_beside_products: int


def fused_work(plan: Plan) -> dict[Compute, FusedWork]:
    """Returns the chain of each local work except views. It includes loops' bodies and branches."""
    found: dict[Compute, FusedWork] = {}
    returned = [*plan.fetches, *(c.value for c in plan.checks)]
    for instructions, leaving in _bodies(plan.instructions, returned):
        _Chains(instructions, leaving).add_to(found)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class WorkInMemory:
    """The values that each instruction of a list must find in memory, and all values that are ever written there."""

    needed: Mapping[Instruction, Sequence[Value]]
    written: Set[Value]


def work_in_memory(instructions: Sequence[Instruction], leaving: Sequence[Value]) -> WorkInMemory:
    """Returns the values in memory for a list of instructions. `leaving`: the values that the list must compute."""
    return _Chains(instructions, leaving).in_memory()


def _bodies(
    instructions: Sequence[Instruction], leaving: Sequence[Value]
) -> Iterator[tuple[Sequence[Instruction], Sequence[Value]]]:
    """Yields each list of instructions, nested ones included, with the values that it must compute."""
    yield instructions, leaving
    for instruction in instructions:
        if inside := nested(instruction):
            yield from _bodies(inside, list(used_directly(instruction)))


def shown_memory(instructions: Sequence[Instruction]) -> dict[Value, Value]:
    """Returns, for each view, the value whose memory it shares."""
    owner: dict[Value, Value] = {}
    for i in instructions:
        if isinstance(i, Compute) and i.facts.is_view:
            owner[i.outputs[0]] = owner.get(i.inputs[0], i.inputs[0])
    return owner


def is_fusable(instruction: Instruction) -> bool:
    """Tells whether a compiler makes its elements where they are used."""
    if not isinstance(instruction, Compute):
        return False
    facts = instruction.facts
    makes_elements = facts.is_elementwise_or_moves or facts.multiplies or facts.expands or facts.is_reduction
    return makes_elements or facts.adds_to_part or facts.is_trivial or facts.draws_random_bits


def is_product(instruction: Instruction) -> bool:
    """Tells whether the instruction is a product of matrices."""
    return isinstance(instruction, Compute) and bool(instruction.facts.products)


def moves_elements(instruction: Instruction) -> bool:
    """Tells whether the instruction only moves elements, to memory of its own."""
    return isinstance(instruction, Compute) and instruction.facts.only_moves and bool(instruction.inputs)


def size_in_products(dtype: tf.DType) -> int:
    """Returns the bytes of each number as a product reads it: a TPU multiplies float32 numbers as bfloat16."""
    return tf.bfloat16.size if dtype == tf.float32 else dtype.size


class _Chains:
    """The chains of the instructions in one list."""

    def __init__(self, instructions: Sequence[Instruction], leaving: Sequence[Value]) -> None:
        self._owner = shown_memory(instructions)
        self._work = [i for i in instructions if not (isinstance(i, Compute) and i.facts.is_view)]
        self._producers = {v: i for i in self._work for v in i.outputs}
        self._read = {i: list(dict.fromkeys(self._own(v) for v in i.inputs)) for i in self._work}
        self._leaving = {self._own(v) for v in leaving}
        # A pass that reads a value after others does not make it from earlier ones. So such a value is written.
        waiting = (i.inputs[0] for i in instructions if isinstance(i, Compute) and i.facts.waits)
        self._waiting = {self._own(v) for v in waiting}
        self._chain: dict[Instruction, Instruction] = {}
        self._sources = self._found_sources()
        self._join_all()
        products = (i for i in self._work if is_product(i))
        self._products_reading = collections.Counter(v for i in products for v in self._read[i])
        self._products_fuse = True
        self._find_uses()

    def add_to(self, found: dict[Compute, FusedWork]) -> None:
        numbers: dict[Instruction, int] = {}
        lengths = collections.Counter(self._root(i) for i in self._work)
        beside = self._beside_products()._traffic()
        for i, (read, written) in self._traffic().items():
            chain = self._root(i)
            number = numbers.setdefault(chain, len(found))
            found[i] = FusedWork(number, lengths[chain], read, written, sum(beside[i]))

    def _beside_products(self) -> _Chains:
        """Returns the same chains for a machine whose products are kernels of their own."""
        chains = copy.copy(self)
        chains._products_fuse = False
        chains._find_uses()
        return chains

    def _traffic(self) -> dict[Compute, tuple[int, int]]:
        """Returns the bytes that each work reads and writes for its chain."""
        already: set[tuple[Instruction, Value]] = set()
        found: dict[Compute, tuple[int, int]] = {}
        for i in self._work:
            if not isinstance(i, Compute):
                continue
            chain = self._root(i)
            # The first work of a chain that reads a value pays for it, and the rest of the chain shares that read.
            own = [v for v in self._from_memory[i] if (chain, v) not in already and not self._follows_product(v)]
            already.update((chain, v) for v in own)
            read = sum(i.bytes_of(v) for v in own)
            read = min(read, sum(v.slice_bytes for v in i.outputs)) if i.facts.takes_own_slice else read
            found[i] = read, sum(i.bytes_of(v) for v in i.outputs if self._is_written(v))
        return found

    def in_memory(self) -> WorkInMemory:
        written = {v for i in self._work for v in i.outputs if not is_fusable(i) or self._is_written(v)}
        stood_for: dict[Value, tuple[Value, ...]] = {}
        needed = {}
        for i in self._work:
            needed[i] = tuple(dict.fromkeys(s for v in self._read[i] for s in stood_for.get(v, (v,))))
            stood_for.update({v: needed[i] for v in i.outputs if v not in written})
        return WorkInMemory(needed, written)

    def _join_all(self) -> None:
        """Joins each work with the chains of its inputs, if they wait for as many passes as it does."""
        depth: dict[Instruction, int] = {}
        for i in self._work:
            made = {v: self._producers[v] for v in self._read[i] if v in self._producers}
            goes_on = {v: _goes_on(producer) and v not in self._waiting for v, producer in made.items()}
            # The depth counts the passes that must end before this work. One pass does work of one depth only.
            depth[i] = max((depth[producer] + (not goes_on[v]) for v, producer in made.items()), default=0)
            self._chain[i] = i
            if is_fusable(i):
                for v, producer in made.items():
                    if goes_on[v] and depth[producer] == depth[i]:
                        self._chain[self._root(i)] = self._root(producer)

    def _read_from_memory(self, instruction: Instruction) -> list[Value]:
        """Returns the values that the pass must find in memory for this instruction."""
        if not is_fusable(instruction):
            return list(dict.fromkeys(s for v in self._read[instruction] for s in self._operand(instruction, v)))
        chain = self._root(instruction)
        outside = [v for v in self._read[instruction] if not self._is_made_by(v, chain)]
        return [
            v for v in dict.fromkeys(s for v in outside for s in self._sources_of(v)) if not self._is_made_by(v, chain)
        ]

    def _operand(self, instruction: Instruction, value: Value) -> tuple[Value, ...]:
        """Returns the values that unfused work reads to obtain an operand.

        A product makes the operand again from few bytes, if that moves fewer bytes than one pass that writes it. That
        pass would write it in the narrower dtype that products read.
        """
        if not (self._products_fuse and is_product(instruction)):
            return (value,)
        sources, products = self._sources_of(value), self._products_reading[value]
        made_anew = products * sum(s.slice_bytes for s in sources)
        short = value.slice_bytes * size_in_products(value.dtype) // value.dtype.size
        return sources if made_anew <= sum(s.slice_bytes for s in sources) + (1 + products) * short else (value,)

    def _find_uses(self) -> None:
        """Finds what each work reads from memory, which values must be there, and the chains that read each value."""
        self._from_memory = {i: self._read_from_memory(i) for i in self._work}
        self._needed, self._chains_reading = set(self._leaving), dict[Value, set[Instruction]]()
        for i, values in self._from_memory.items():
            for value in values:
                self._needed.add(value)
                self._chains_reading.setdefault(value, set()).add(self._root(i))

    def _found_sources(self) -> dict[Value, tuple[Value, ...]]:
        """Returns, for each value that other passes make again, the values that they read for this."""
        found: dict[Value, tuple[Value, ...]] = {}
        for i in filter(_is_made_anywhere, self._work):
            sources = tuple(dict.fromkeys(s for v in self._read[i] for s in found.get(v, (v,))))
            size = sum(s.slice_bytes for s in sources)
            again = (v for v in i.outputs if v not in self._waiting and size <= _MADE_AGAIN * v.slice_bytes)
            found.update(dict.fromkeys(again, sources))
        return found

    def _sources_of(self, value: Value) -> tuple[Value, ...]:
        """Returns the values that another pass reads to obtain a value: the value itself, or the values it is made of
        if they are small.
        """
        return self._sources.get(value, (value,))

    def _is_written(self, value: Value) -> bool:
        return value in self._needed and (value in self._leaving or not self._follows_product(value))

    def _follows_product(self, value: Value) -> bool:
        """Tells whether the value is a product that only one chain of elementwise work reads."""
        producer = self._producers.get(value)
        if producer is None or not is_product(producer) or not self._products_fuse:
            return False
        if value in self._leaving or value in self._waiting:
            return False
        reading = self._chains_reading.get(value, set())
        return len(reading) == 1 and all(map(is_fusable, reading))

    def _is_made_by(self, value: Value, chain: Instruction) -> bool:
        producer = self._producers.get(value)
        return producer is not None and self._root(producer) is chain

    def _own(self, value: Value) -> Value:
        return self._owner.get(value, value)

    def _root(self, instruction: Instruction) -> Instruction:
        while self._chain[instruction] is not instruction:
            self._chain[instruction] = self._chain[self._chain[instruction]]
            instruction = self._chain[instruction]
        return instruction


def _goes_on(instruction: Instruction) -> bool:
    """Tells whether a reader of the instruction's result can be in the same pass."""
    return is_fusable(instruction) and not (isinstance(instruction, Compute) and instruction.facts.is_reduction)


def _is_made_anywhere(instruction: Instruction) -> bool:
    """Tells whether each pass that needs it may make it again."""
    if not isinstance(instruction, Compute) or instruction.facts.kernel in _MADE_ONCE:
        return False
    return _goes_on(instruction) and not instruction.facts.draws_random_bits
