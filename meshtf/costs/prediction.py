"""Predicts how long a step takes on a machine, and its parts, from a report and the machine alone.

Each operation has its seconds (`seconds.py`) and its share of the step (`step_timing.py`). The parts of a step and the
seconds of collectives are sums of these shares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from meshtf.costs.machine import Machine
from meshtf.costs.placement import Placement
from meshtf.costs.step_timing import OperationTime, PartOfStep, StepTiming, part_of_step
from meshtf.costs.torus_phases import phases_text
from meshtf.dimension import Dimension, Shape
from meshtf.errors import UsageError
from meshtf.layout import Axes
from meshtf.lowering.report.operation_records import OperationRecord
from meshtf.lowering.report.report import Report
from meshtf.lowering.report.text_table import bytes_text, seconds_text


@dataclasses.dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step by the kind of work. Their sum is the step.

    Attributes:
      products: matrix products and convolutions.
      elementwise: all other local work.
      update: the computation of the next values of variables.
      communication: the exposed seconds of collectives, in which nothing else is done.
      bubble: the useless work of stages of pipelines.
      start: the start of the step, which every step has, with the copy of its inputs to the device.
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
class CollectiveTime:
    """All collectives of one kind over the same mesh axes.

    Attributes:
      kind: the kind, as the report names it.
      axes: the mesh axes.
      links: the machine's links that a group of cores has, as `16 ring x 8 line`.
      count: how many there are in a step.
      bytes_sent: bytes that each core sends.
      seconds: seconds that they take, hidden behind other work or not. A pipeline's bubble is left out.
      exposed_seconds: the seconds among these in which nothing else is done. They make the step longer.
      phases: on a torus, the parts along one axis of it after the other, as
        `reduce_scatter along 32, all_reduce along 16, all_gather along 32`. Empty if there is one part.
    """

    kind: str
    axes: Axes
    links: str
    count: int
    bytes_sent: int
    seconds: float
    exposed_seconds: float
    phases: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a program's step. Print it, or call `to_dict()`.

    Attributes:
      program: its name.
      machine: the machine's name.
      seconds: the seconds of a step.
      parts: the seconds by the kind of work.
      hidden_communication: seconds of collectives during which other work is done. They are not among the parts. With
        `parts.communication` they make up all seconds of collectives.
      tokens_per_second: tokens of all cores together. None if the number of tokens in a step is not known.
      share_of_peak: the step's FLOPs, as a share of the machine's peak in the dtype of most products. Repeated and
        recomputed work counts.
      peak_bytes: bytes that a core needs.
      memory_bytes: bytes that a core has.
      operations: the operations in the plan's order. Operations inside a loop follow the loop, which has their seconds.
        The sum of all exposed seconds and `parts.start` is the step.
      collectives: the collectives by kind and axes, the longest first.
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
        """Whether a core has enough memory for the program."""
        return self.peak_bytes <= self.memory_bytes

    def to_dict(self, *, operations: bool = True) -> dict[str, Any]:
        """Returns dictionaries, lists, texts and numbers, fit for JSON. `operations=False` leaves out that list."""
        data = dataclasses.asdict(self) | {"fits": self.fits}
        if not operations:
            del data["operations"]
        return data

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def predict(report: Report, machine: Machine, *, tokens_per_step: int | None = None) -> Prediction:
    """Predicts the time of one step, and its parts.

    Args:
      report: the report of the program: `step.report()`.
      machine: the machine; see `load_machine`.
      tokens_per_step: tokens in a batch.

    Raises:
      UsageError: if the report or the machine is something else, such as a machine's name.

    Examples:
      >>> y = mtf.reduce_sum(x, reduced_dim="batch")
      >>> lowering = mtf.Lowering(mesh.graph, {mesh: mtf.PlanMeshImpl("rows:2", "batch:rows")})
      >>> prediction = mtf.costs.predict(lowering.report([y]), mtf.costs.load_machine("v5e"))
      >>> [c.kind for c in prediction.collectives]
      ['all_reduce']
    """
    if not isinstance(report, Report):
        raise UsageError(f"predict needs a report, such as step.report(), not {type(report).__name__}")
    if not isinstance(machine, Machine):
        raise UsageError(f'predict needs a machine, such as mtf.costs.load_machine("v5e"), not {machine!r}')
    machine = machine.shared_by(report.cores)
    placement = Placement(machine, _mesh_in_parts(report), report.process_of_core)
    start = machine.step_seconds + sum(feed.bytes_per_core for feed in report.feeds) / machine.host_bandwidth
    timing = StepTiming(report.operations, placement, start)
    seconds = timing.seconds
    # Products of a branch's shorter side take no time.
    timed = zip(report.operations, timing.operations, strict=True)
    flops = [(r.dtype, r.flops * r.times) for r, time in timed if r.category == "product" and time.seconds]
    dtype = max(flops, key=lambda f: f[1], default=("bfloat16", 0))[0]
    peak = machine.peak_of(dtype) * seconds
    collectives = _collectives(report.operations, timing, placement)
    return Prediction(
        program=report.program,
        machine=machine.name,
        seconds=seconds,
        parts=_parts(report.operations, timing, start),
        hidden_communication=max(0.0, sum(c.seconds - c.exposed_seconds for c in collectives)),
        tokens_per_second=tokens_per_step / seconds if tokens_per_step and seconds else None,
        share_of_peak=sum(n for _, n in flops) / peak if peak else 0.0,
        peak_bytes=report.memory.peak,
        memory_bytes=machine.memory_bytes,
        operations=timing.operations,
        collectives=collectives,
    )


def _mesh_in_parts(report: Report) -> Shape:
    """Returns the mesh of the plan, in which an axis is in parts if its parts split different dimensions."""
    parts = dict(report.axis_parts)
    dims: list[Dimension] = []
    for name, size in report.mesh:
        own = [Dimension(part, n) for part, n in parts.items() if part.rpartition(".")[0] == name]
        dims += own or [Dimension(name, size)]
    return Shape(dims)


def _parts(records: Sequence[OperationRecord], timing: StepTiming, start: float) -> StepParts:
    parts = dict.fromkeys(get_args(PartOfStep), 0.0)
    for record, time in zip(records, timing.operations, strict=True):
        parts[part_of_step(record)] += time.exposed_seconds
    return StepParts(**parts, start=start)


def _collectives(
    records: Sequence[OperationRecord], timing: StepTiming, placement: Placement
) -> tuple[CollectiveTime, ...]:
    found: dict[tuple[str, Axes], list[float]] = {}
    for record, time in zip(records, timing.operations, strict=True):
        if record.category == "collective":
            of_one = (record.times, record.times * record.bytes_sent, time.seconds, time.exposed_seconds)
            total = found.get((record.kind, record.axes), [0, 0, 0.0, 0.0])
            found[record.kind, record.axes] = [a + b for a, b in zip(total, of_one, strict=True)]
    rows = []
    for (kind, axes), (count, sent, seconds, exposed) in found.items():
        links = placement.footprint(axes)
        phases = phases_text(kind, links.extents)
        rows.append(CollectiveTime(kind, axes, str(links), int(count), int(sent), seconds, exposed, phases))
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _lines(prediction: Prediction) -> list[str]:
    parts: Mapping[str, float] = dataclasses.asdict(prediction.parts)
    made_of = ", ".join(f"{name} {seconds_text(s)}" for name, s in parts.items() if s > 0)
    lines = [f"predicted on {prediction.machine}: {seconds_text(prediction.seconds)} a step: {made_of}"]
    hidden = prediction.hidden_communication
    speed = [f"{prediction.tokens_per_second:,.0f} tokens/s"] if prediction.tokens_per_second else []
    speed += [f"{100 * prediction.share_of_peak:.1f} % of peak"]
    speed += [f"{seconds_text(hidden)} of communication behind other work"] if hidden > 0 else []
    lines.append("  " + ", ".join(speed))
    memory, own = (bytes_text(n).strip() for n in (prediction.peak_bytes, prediction.memory_bytes))
    lines.append(f"  {memory} of {own} a core" + ("" if prediction.fits else ": it does not fit"))
    for row in prediction.collectives:
        axes = "+".join(row.axes)
        lines.append(
            f"  {row.kind} over {axes} ({row.links}): {row.count} in {seconds_text(row.seconds)}{_waited(row)}"
        )
        if row.phases:
            lines.append(f"    {row.phases}")
    return lines


def _waited(row: CollectiveTime) -> str:
    if seconds_text(row.exposed_seconds) == seconds_text(row.seconds):
        return ""
    return f", {seconds_text(row.exposed_seconds)} of the step and the rest behind other work"
