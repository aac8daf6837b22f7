"""Which elementwise work a compiler that fuses does in one pass over memory, and what such a pass reads and writes.

Of (a = x * 2, b = a + 1, s = sum(b)) one pass reads x and writes s alone; work by work, x, a twice, b twice and s go
through memory. A pass ends where something else must be complete first: what follows a sum that has summed its input
reads it anew, as XLA's fusions do; so of a normalization one pass has the statistics and one the result.

Elementwise work that alone reads a product of matrices is done as the product is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from meshtf.planning.plan import Compute, Instruction, Plan, Value, nested, used_directly


@dataclasses.dataclass(frozen=True, slots=True)
class FusedWork:
    """Local work in its chain: the chain's number, and of the chain's bytes those that this work reads and writes."""

    chain: int
    bytes_read: int
    bytes_written: int


def fused_work(plan: Plan) -> dict[Compute, FusedWork]:
    """Of all local work of a plan but views, loops' bodies and branches included."""
    found: dict[Compute, FusedWork] = {}
    returned = [*plan.fetches, *(c.value for c in plan.checks)]
    for instructions, leaving in _bodies(plan.instructions, returned):
        _Chains(instructions, leaving).add_to(found)
    return found


def _bodies(
    instructions: Sequence[Instruction], leaving: Sequence[Value]
) -> Iterator[tuple[Sequence[Instruction], Sequence[Value]]]:
    """Instructions that stand in one list, and the values of them that the list is there for."""
    yield instructions, leaving
    for instruction in instructions:
        if inside := nested(instruction):
            yield from _bodies(inside, list(used_directly(instruction)))


def shown(instructions: Sequence[Instruction]) -> dict[Value, Value]:
    """By value, the one whose memory it is: itself, or what it is a view of."""
    owner: dict[Value, Value] = {}
    for i in instructions:
        if isinstance(i, Compute) and i.facts.is_view:
            owner[i.outputs[0]] = owner.get(i.inputs[0], i.inputs[0])
    return owner


def is_fusable(instruction: Instruction) -> bool:
    """Whether a compiler makes its elements where they are used."""
    if not isinstance(instruction, Compute):
        return False
    facts = instruction.facts
    return facts.is_elementwise_or_moves or facts.is_reduction or facts.is_trivial or facts.draws_random_bits


class _Chains:
    """The chains of instructions that stand in one list."""

    def __init__(self, instructions: Sequence[Instruction], leaving: Sequence[Value]) -> None:
        self._owner = shown(instructions)
        self._work = [i for i in instructions if not (isinstance(i, Compute) and i.facts.is_view)]
        self._producers = {v: i for i in self._work for v in i.outputs}
        self._readers: dict[Value, list[Instruction]] = {}
        for i in self._work:
            for value in self._read(i):
                self._readers.setdefault(value, []).append(i)
        self._leaving = {self._own(v) for v in leaving}
        self._chain: dict[Instruction, Instruction] = {}
        depth: dict[Instruction, int] = {}
        for i in self._work:
            depth[i] = max((self._depth_after(v, depth) for v in self._read(i)), default=0)
            self._chain[i] = i
            if is_fusable(i):
                for producer in self._producers_of(i):
                    if self._fuses_into_readers(producer) and depth[producer] == depth[i]:
                        self._join(i, producer)

    def add_to(self, found: dict[Compute, FusedWork]) -> None:
        read: set[tuple[Instruction, Value]] = set()
        numbers: dict[Instruction, int] = {}
        for i in self._work:
            if not isinstance(i, Compute):
                continue
            chain = self._root(i)
            number = numbers.setdefault(chain, len(found))
            own = [v for v in self._read(i) if (chain, v) not in read and not self._is_in_registers(v, chain)]
            read.update((chain, v) for v in own)
            written = sum(v.slice_bytes for v in i.outputs if self._is_written(v, chain))
            found[i] = FusedWork(number, sum(v.slice_bytes for v in own), written)

    def _own(self, value: Value) -> Value:
        return self._owner.get(value, value)

    def _read(self, instruction: Instruction) -> list[Value]:
        return list(dict.fromkeys(self._own(v) for v in instruction.inputs))

    def _producers_of(self, instruction: Instruction) -> list[Instruction]:
        return [self._producers[v] for v in self._read(instruction) if v in self._producers]

    def _depth_after(self, value: Value, depth: Mapping[Instruction, int]) -> int:
        """How many passes must be over before a value is there to be read."""
        producer = self._producers.get(value)
        if producer is None:
            return 0
        return depth[producer] + (not self._fuses_into_readers(producer))

    def _fuses_into_readers(self, instruction: Instruction) -> bool:
        return is_fusable(instruction) and not (isinstance(instruction, Compute) and instruction.facts.is_reduction)

    def _is_in_registers(self, value: Value, chain: Instruction) -> bool:
        """Whether a chain makes a value itself, or takes it from the product that makes it."""
        producer = self._producers.get(value)
        return producer is not None and (self._root(producer) is chain or self._follows_product(value))

    def _is_written(self, value: Value, chain: Instruction) -> bool:
        if value in self._leaving:
            return True
        if self._follows_product(value):
            return False
        return any(self._root(reader) is not chain for reader in self._readers.get(value, ()))

    def _follows_product(self, value: Value) -> bool:
        """Whether a product's result is read by one chain alone."""
        producer = self._producers.get(value)
        if not isinstance(producer, Compute) or not producer.facts.products or value in self._leaving:
            return False
        readers = self._readers.get(value, [])
        return len({self._root(r) for r in readers}) == 1 and all(map(is_fusable, readers))

    def _root(self, instruction: Instruction) -> Instruction:
        while self._chain[instruction] is not instruction:
            self._chain[instruction] = self._chain[self._chain[instruction]]
            instruction = self._chain[instruction]
        return instruction

    def _join(self, one: Instruction, other: Instruction) -> None:
        self._chain[self._root(one)] = self._root(other)
