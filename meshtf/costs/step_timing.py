"""The model of overlap: when each operation of a step runs, and by how much it makes the step longer.

Operations follow one another in the plan's order. If the machine overlaps, collectives are a second line of work. A
collective starts when its input exists and the previous collective has ended. A reader of its result waits for it. A
collective is exposed while the first line waits for it, and hidden behind other work for the rest of its time. A loop
takes the time of one iteration times the number of iterations. So each second of the step belongs to one operation, to
a bubble of a pipeline, or to the step's start. All shares of a step are shares of these seconds.

For example: a product takes 2 s, the allreduce of its result 3 s, an independent product 2 s, and the update that reads
the sum 1 s. The allreduce runs from second 2 to 5, and the other product from 2 to 4. Then the core waits from 4 to 5.
So 1 s of the allreduce is exposed, 2 s are hidden, and the step takes 6 s.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Literal, TypeAlias

from meshtf.costs.machine import Machine
from meshtf.costs.placement import Placement
from meshtf.costs.seconds import RANDOM_BITS_OPERATIONS, Work, collective_seconds, permute_seconds, seconds_of
from meshtf.lowering.report.operation_records import OperationRecord

_LOST = 1e-9

PartOfStep: TypeAlias = Literal["products", "elementwise", "update", "communication", "bubble"]


@dataclasses.dataclass(frozen=True, slots=True)
class OperationTime:
    """The times of an operation.

    Attributes:
      operation: number of its record in the report's `operations`.
      begins: seconds into the step at which it begins for the first time.
      seconds: seconds that it takes in all its runs. Runs in a pipeline's bubble are left out, and the shorter side of
        a branch counts 0. A loop or a branch has the seconds of everything inside.
      exposed_seconds: seconds by which it makes the step longer. For a collective, the seconds in which the core waits
        for it. For other work, all seconds. For a pipeline's loop, its bubble. For other loops and branches 0, since
        the operations inside have them. The sum of all and of the step's start is the step.
    """

    operation: int
    begins: float
    seconds: float
    exposed_seconds: float


def part_of_step(record: OperationRecord) -> PartOfStep:
    """The part of the step that an operation's time belongs to. A loop's time is its bubble."""
    if record.category == "collective":
        return "communication"
    if record.category in ("loop", "branch"):
        return "bubble"
    if record.is_update:
        return "update"
    return "products" if record.category == "product" else "elementwise"


def operation_seconds(record: OperationRecord, placement: Placement) -> float:
    """Computes the seconds of one operation, once. A loop or a branch has 0, since the operations inside have
    their own.
    """
    machine = placement.machine
    if record.category == "collective":
        if record.destinations:
            return permute_seconds(record.slice_bytes, record.destinations, placement)
        return collective_seconds(record.kind, record.slice_bytes, record.axes, placement)
    if record.category in ("loop", "branch", "view"):
        return 0.0
    fused = machine.fuses and record.chain >= 0
    moved = _bytes_moved(record, machine)
    flops = record.flops * (RANDOM_BITS_OPERATIONS if record.draws_random_bits else 1)
    work = Work(flops, moved, record.dtype, record.products, record.transcendentals, record.has_kernel)
    seconds = seconds_of(work, machine)
    if fused and record.chain_length > 1:
        # One pass over memory starts once for all operations in it.
        seconds -= machine.operation_seconds * (1 - 1 / record.chain_length)
    return seconds


def _bytes_moved(record: OperationRecord, machine: Machine) -> int:
    if not machine.fuses or record.chain < 0:
        return record.bytes_read + record.bytes_written
    if not machine.products_fuse:
        return record.bytes_beside_products
    return record.fused_bytes_read + record.fused_bytes_written


class StepTiming:
    """All operations of a program, timed on a mesh on a machine.

    Attributes:
      seconds: seconds of the step: its start, and all exposed seconds.
      operations: the times, in the order of the records.
    """

    def __init__(self, records: Sequence[OperationRecord], placement: Placement, start: float) -> None:
        self._records = records
        self._overlaps = placement.machine.overlaps
        self._inside: dict[int, list[int]] = {}
        for number, record in enumerate(records):
            self._inside.setdefault(record.inside, []).append(number)
        self._once = [operation_seconds(record, placement) for record in records]
        rows = zip(records, self._once, strict=True)
        self._exposed_once = [0.0 if self._is_a_second_line(record) else seconds for record, seconds in rows]
        self._begins = [0.0] * len(records)
        self._useful_rounds: dict[int, float] = {}
        self._way_taken: dict[int, int] = {}
        self.seconds = start + self._timed(self._inside.get(-1, []), start)
        times = self._times_of_use()
        seconds = zip(self._begins, self._once, self._exposed_once, times, strict=True)
        self.operations = tuple(OperationTime(n, b, t * s, t * e) for n, (b, s, e, t) in enumerate(seconds))

    def _is_a_second_line(self, record: OperationRecord) -> bool:
        return self._overlaps and record.category == "collective"

    def _timed(self, numbers: Sequence[int], start: float) -> float:
        """Returns the seconds of the instructions of one list, done once from `start` on."""
        ready: dict[int, float] = {}
        working = sending = start
        under_way: collections.deque[int] = collections.deque()
        for number in numbers:
            record = self._records[number]
            needed = max((ready.get(n, start) for n in record.needs), default=start)
            if self._is_a_second_line(record):
                # Collectives follow one another on the links, while the core does other work.
                self._begins[number] = max(needed, sending)
                sending = ready[number] = self._begins[number] + self._once[number]
                under_way.append(number)
                continue
            begins = self._begins[number] = max(working, needed)
            self._expose(under_way, working, begins)
            if record.category in ("loop", "branch"):
                self._time_inside(number, begins)
            working = ready[number] = begins + self._once[number]
        end = max(working, sending)
        self._expose(under_way, working, end)
        return end - start

    def _expose(self, under_way: collections.deque[int], since: float, until: float) -> None:
        """Exposes the seconds from `since` to `until`, in which the core waits, and assigns them to the collectives
        that run then.

        In that time, collectives follow one another without a gap, since the inputs of all existed when the core began
        to wait.
        """
        while under_way:
            number = under_way[0]
            ends = self._begins[number] + self._once[number]
            self._exposed_once[number] += max(0.0, min(ends, until) - max(self._begins[number], since))
            if ends > until:
                return
            self._round(under_way.popleft())

    def _round(self, number: int) -> None:
        """Makes a collective wholly exposed, or wholly hidden, if it differs from that only by rounding."""
        whole = self._once[number]
        if abs(self._exposed_once[number] - whole) < _LOST * whole:
            self._exposed_once[number] = whole
        elif self._exposed_once[number] < _LOST * whole:
            self._exposed_once[number] = 0.0

    def _time_inside(self, number: int, begins: float) -> None:
        """Times a loop with all its iterations, of which a share may be a bubble, or a branch by its longer side."""
        record, inside = self._records[number], self._inside.get(number, [])
        if record.category == "branch":
            ways = [self._timed([n for n in inside if self._records[n].alternative == way], begins) for way in (0, 1)]
            self._way_taken[number] = ways.index(max(ways))
            self._once[number] = max(ways)
            return
        rounds = self._records[inside[0]].times / record.times if inside and record.times else 0
        # All iterations take the same time, so one of them is timed.
        one = self._timed(inside, begins)
        self._useful_rounds[number] = rounds * (1 - record.bubble)
        self._once[number] = rounds * one
        self._exposed_once[number] = rounds * record.bubble * one

    def _times_of_use(self) -> list[float]:
        """Returns how often each operation runs usefully, outside of bubbles."""
        times: list[float] = []
        for record in self._records:  # a loop comes before the operations inside
            outer = 1.0 if record.inside < 0 else times[record.inside]
            if record.inside in self._way_taken:
                outer *= record.alternative == self._way_taken[record.inside]
            times.append(outer * self._useful_rounds.get(record.inside, 1.0))
        return times
