"""How long a step takes on a machine, and of what its time is made: from a report and the machine alone.

Each operation has its seconds (`seconds.py`). They follow one another in the plan's order; where the machine overlaps,
collectives are a second line of work: one starts when its input is there and the one before is over, and what reads
its result waits for it. A loop takes as often as it goes round what one round takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from meshtf.costs.machine import Machine
from meshtf.costs.placement import Placement
from meshtf.costs.seconds import RANDOM_BITS_OPERATIONS, Work, collective_seconds, permute_seconds, seconds_of
from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes
from meshtf.lowering.report.operation_records import OperationRecord
from meshtf.lowering.report.report import Report


@dataclasses.dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step by what is done in them; together they are the step.

    Attributes:
      products: of matrices, and convolutions.
      elementwise: all other local work.
      update: of the next values of variables.
      communication: collectives, as far as nothing else is done meanwhile.
      bubble: all that stages of pipelines do in vain.
      start: of the step, whatever is in it.
    """

    products: float = 0.0
    elementwise: float = 0.0
    update: float = 0.0
    communication: float = 0.0
    bubble: float = 0.0
    start: float = 0.0

    @property
    def total(self) -> float:
        return self.products + self.elementwise + self.update + self.communication + self.bubble + self.start


@dataclasses.dataclass(frozen=True, slots=True)
class OperationTime:
    """An operation, and how long it takes.

    Attributes:
      operation: number of its record in the report's `operations`.
      begins: seconds into the step at which it begins, the first time.
      seconds: that it takes, all times together.
    """

    operation: int
    begins: float
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class CollectiveTime:
    """All collectives of one kind over the same mesh axes.

    Attributes:
      kind: as the report has it.
      axes: of the mesh.
      links: what a group of cores has of the machine's, as `16 ring x 8 line`.
      count: how many there are in a step.
      bytes_sent: by each core.
      seconds: that they take, hidden behind other work or not.
    """

    kind: str
    axes: Axes
    links: str
    count: int
    bytes_sent: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """What a step of a program would take. `print` it, or ask for `to_dict()`.

    Attributes:
      program: its name.
      machine: its name.
      seconds: of a step.
      parts: of what they are made.
      hidden_communication: seconds of collectives behind which other work is done; not among the parts.
      tokens_per_second: of all cores together; None where nobody said how many a step has.
      share_of_peak: of the machine's peak in the dtype of most products, what the step's FLOPs come to, repeated and
        recomputed work included.
      peak_bytes: that a core needs.
      memory_bytes: that it has.
      operations: in the plan's order; those inside of loops follow the loop, whose seconds are theirs.
      collectives: by kind and axes, those that take longest first.
    """

    program: str
    machine: str
    seconds: float
    parts: StepParts
    hidden_communication: float
    tokens_per_second: float | None
    share_of_peak: float
    peak_bytes: int
    memory_bytes: float
    operations: tuple[OperationTime, ...]
    collectives: tuple[CollectiveTime, ...]

    @property
    def fits(self) -> bool:
        """Whether a core has the memory that it needs."""
        return self.peak_bytes <= self.memory_bytes

    def to_dict(self, *, operations: bool = True) -> dict[str, Any]:
        """As dictionaries, lists, texts and numbers, fit for JSON. `operations=False` leaves that list out."""
        data = dataclasses.asdict(self) | {"fits": self.fits}
        if not operations:
            del data["operations"]
        return data

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def predict(report: Report, machine: Machine, *, tokens_per_step: int | None = None) -> Prediction:
    """The time of one step, and its parts.

    Args:
      report: of the program: `step.report()`.
      machine: for which; see `load_machine`.
      tokens_per_step: in a batch.

    Examples:
      >>> y = mtf.reduce_sum(x, reduced_dim="batch")
      >>> lowering = mtf.Lowering(mesh.graph, {mesh: mtf.PlanMeshImpl("rows:2", "batch:rows")})
      >>> prediction = mtf.costs.predict(lowering.report([y]), mtf.costs.load_machine("v5e"))
      >>> [c.kind for c in prediction.collectives]
      ['all_reduce']
    """
    machine = machine.shared_by(report.cores)
    placement = Placement(machine, _mesh_in_parts(report), report.process_of_core)
    return _Timing(report.operations, placement).prediction(report, tokens_per_step)


def _mesh_in_parts(report: Report) -> Shape:
    """The mesh as the plan has it, with axes in parts where these split dimensions of their own."""
    parts = dict(report.axis_parts)
    dims: list[Dimension] = []
    for name, size in report.mesh:
        own = [Dimension(part, n) for part, n in parts.items() if part.rpartition(".")[0] == name]
        dims += own or [Dimension(name, size)]
    return Shape(dims)


def operation_seconds(record: OperationRecord, placement: Placement) -> float:
    """Of one operation, once; 0 of a loop or a branch, which takes what is inside of it."""
    machine = placement.machine
    if record.category == "collective":
        if record.destinations:
            return permute_seconds(record.slice_bytes, record.destinations, placement)
        return collective_seconds(record.kind, record.slice_bytes, record.axes, placement)
    if record.category in ("loop", "branch", "view"):
        return 0.0
    fused = machine.fuses and record.chain >= 0
    moved = record.fused_bytes_read + record.fused_bytes_written if fused else record.bytes_read + record.bytes_written
    flops = record.flops * (RANDOM_BITS_OPERATIONS if record.draws_random_bits else 1)
    work = Work(flops, moved, record.dtype, record.products, record.transcendentals)
    seconds = seconds_of(work, machine)
    if fused and record.chain_length > 1:
        # One pass begins once for all that are done in it.
        seconds -= machine.operation_seconds * (1 - 1 / record.chain_length)
    return seconds


@dataclasses.dataclass(slots=True)
class _Spent:
    """Seconds of the instructions in one list, by part, and of collectives behind them."""

    seconds: float = 0.0
    parts: dict[str, float] = dataclasses.field(default_factory=dict)
    hidden: float = 0.0

    def add(self, other: _Spent, times: float = 1.0) -> None:
        for part, seconds in other.parts.items():
            self.parts[part] = self.parts.get(part, 0.0) + times * seconds
        self.hidden += times * other.hidden


class _Timing:
    """All operations of a program, timed on a mesh on a machine."""

    def __init__(self, records: Sequence[OperationRecord], placement: Placement) -> None:
        self._records, self._placement = records, placement
        self._machine = placement.machine
        self._inside: dict[int, list[int]] = {}
        for number, record in enumerate(records):
            self._inside.setdefault(record.inside, []).append(number)
        self._once = [operation_seconds(record, placement) for record in records]
        self._begins = [0.0] * len(records)
        self._loop_seconds: dict[int, float] = {}

    def prediction(self, report: Report, tokens_per_step: int | None) -> Prediction:
        machine = self._machine
        spent = self._timed(self._inside.get(-1, []), machine.step_seconds)
        seconds = machine.step_seconds + spent.seconds
        times = [self._times(number) for number in range(len(self._records))]
        flops = [(r.dtype, r.flops * r.times) for r in self._records if r.category == "product"]
        dtype = max(flops, key=lambda f: f[1], default=("bfloat16", 0))[0]
        peak = machine.peak_of(dtype) * seconds
        return Prediction(
            program=report.program,
            machine=machine.name,
            seconds=seconds,
            parts=StepParts(**spent.parts, start=machine.step_seconds),
            hidden_communication=spent.hidden,
            tokens_per_second=tokens_per_step / seconds if tokens_per_step and seconds else None,
            share_of_peak=sum(n for _, n in flops) / peak if peak else 0.0,
            peak_bytes=report.memory.peak,
            memory_bytes=machine.memory_bytes,
            operations=tuple(OperationTime(n, self._begins[n], s) for n, s in enumerate(times)),
            collectives=self._collectives(times),
        )

    def _times(self, number: int) -> float:
        record = self._records[number]
        return record.times * self._loop_seconds.get(number, self._once[number])

    def _collectives(self, times: Sequence[float]) -> tuple[CollectiveTime, ...]:
        found: dict[tuple[str, Axes], list[float]] = {}
        for record, seconds in zip(self._records, times, strict=True):
            if record.category == "collective":
                total = found.setdefault((record.kind, record.axes), [0, 0, 0.0])
                total[0] += record.times
                total[1] += record.times * record.bytes_sent
                total[2] += seconds
        rows = [
            CollectiveTime(kind, axes, str(self._placement.footprint(axes)), int(count), int(sent), seconds)
            for (kind, axes), (count, sent, seconds) in found.items()
        ]
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    def _timed(self, numbers: Sequence[int], start: float) -> _Spent:
        """Instructions of one list, from a moment on: two lines of work where the machine overlaps, else one."""
        spent = _Spent()
        ready: dict[int, float] = {}
        working = sending = start
        for number in numbers:
            record = self._records[number]
            needed = max((ready.get(n, start) for n in record.needs), default=start)
            if record.category == "collective" and self._machine.overlaps:
                self._begins[number] = max(needed, sending)
                sending = ready[number] = self._begins[number] + self._once[number]
                spent.hidden += self._once[number]
                continue
            begins = max(working, needed, sending if not self._machine.overlaps else start)
            waited = begins - working
            spent.parts["communication"] = spent.parts.get("communication", 0.0) + waited
            spent.hidden -= waited
            self._begins[number] = begins
            inside = self._within(number, begins)
            seconds = self._once[number] if inside is None else inside.seconds
            if inside is None:
                part = _part(record)
                spent.parts[part] = spent.parts.get(part, 0.0) + seconds
            else:
                spent.add(inside)
            working = ready[number] = begins + seconds
        end = max(working, sending)
        if end > working:
            spent.parts["communication"] = spent.parts.get("communication", 0.0) + end - working
            spent.hidden -= end - working
        spent.hidden = max(spent.hidden, 0.0)
        spent.seconds = end - start
        return spent

    def _within(self, number: int, begins: float) -> _Spent | None:
        """What a loop takes in all its rounds, a branch where it takes longer; None of anything else."""
        record = self._records[number]
        if record.category not in ("loop", "branch"):
            return None
        inside = self._inside.get(number, [])
        if record.category == "branch":
            ways = [self._timed([n for n in inside if self._records[n].alternative == way], begins) for way in (0, 1)]
            chosen = max(ways, key=lambda way: way.seconds)
            self._loop_seconds[number] = chosen.seconds
            return chosen
        rounds = self._records[inside[0]].times / record.times if inside else 0
        one, all_rounds = self._timed(inside, begins), _Spent()
        all_rounds.add(one, rounds * (1 - record.bubble))
        if record.bubble:
            bubble = rounds * record.bubble * one.seconds
            all_rounds.parts["bubble"] = all_rounds.parts.get("bubble", 0.0) + bubble
        all_rounds.seconds = self._loop_seconds[number] = rounds * one.seconds
        return all_rounds


def _part(record: OperationRecord) -> str:
    if record.category == "collective":
        return "communication"
    if record.is_update:
        return "update"
    return "products" if record.category == "product" else "elementwise"


def _lines(prediction: Prediction) -> list[str]:
    parts: Mapping[str, float] = dataclasses.asdict(prediction.parts)
    made_of = ", ".join(f"{name} {_seconds(s)}" for name, s in parts.items() if s > 0)
    lines = [f"predicted on {prediction.machine}: {_seconds(prediction.seconds)} a step: {made_of}"]
    hidden = prediction.hidden_communication
    speed = [f"{prediction.tokens_per_second:,.0f} tokens/s"] if prediction.tokens_per_second else []
    speed += [f"{100 * prediction.share_of_peak:.1f} % of peak"]
    speed += [f"{_seconds(hidden)} of communication behind other work"] if hidden > 0 else []
    lines.append("  " + ", ".join(speed))
    memory, own = prediction.peak_bytes / 2**30, prediction.memory_bytes / 2**30
    lines.append(f"  {memory:,.2f} GiB of {own:,.2f} a core" + ("" if prediction.fits else ": it does not fit"))
    for row in prediction.collectives:
        axes = "+".join(row.axes)
        lines.append(f"  {row.kind} over {axes} ({row.links}): {row.count} in {_seconds(row.seconds)}")
    return lines


def _seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
