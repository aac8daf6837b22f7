"""The records of a report. There is one for each tensor, collective, mesh axis, piece of repeated work, and
pipeline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import Site
from meshtf.layout import Axes, axes_size
from meshtf.lowering.report import accounting
from meshtf.lowering.report._pipelines import Pipeline
from meshtf.lowering.report.memory.peak_memory import peak_and_working_memory
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Collective, Loop, Plan, Value, walk
from meshtf.planning.process_spans import crossing_axes


@dataclasses.dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor on the mesh, or a variable. `layout` is its named shape with the mesh axes that split it.

    If two dimensions are split by parts of one axis, such as `data`, the parts are named `data.0` and `data.1`.
    """

    name: str
    shape: str
    layout: str
    dtype: str
    bytes_per_core: int
    bytes_whole: int

    @classmethod
    def of(cls, name: str, value: Value, axis_parts: AxisParts) -> TensorRecord:
        layout = layout_text(value, axis_parts)
        whole = value.shape.size * value.dtype.size
        return cls(name, str(value.shape), layout, value.dtype.name, value.slice_bytes, whole)


@dataclasses.dataclass(frozen=True, slots=True)
class LoopRecord:
    """A loop whose writer requests that XLA compiles it.

    Attributes:
      operation: the name of its operation.
      label: the operation as people read it: see `mtf.Operation.label`.
      filename, line: the operation's line.
      refusal: why it is not compiled, or an empty text.
      is_joint: whether it is compiled for all cores at once.
    """

    operation: str
    filename: str
    line: int
    refusal: str
    is_joint: bool
    label: str = ""

    @classmethod
    def all_of(cls, plan: Plan) -> Iterator[LoopRecord]:
        """Yields the loops of a plan, in program order."""
        for instruction, _ in walk(plan.instructions):
            if isinstance(instruction, Loop) and instruction.compilation is not None:
                operation, compiled = instruction.operation, instruction.compilation
                site = operation.site
                place = (site.filename, site.line)
                yield cls(operation.name, *place, compiled.refusal, compiled.is_joint, operation.label)


@dataclasses.dataclass(frozen=True, slots=True)
class LayersRecord:
    """A loop over the layers of a stack, on a backend that unrolls such loops.

    Attributes:
      operation: the name of its operation.
      label: the operation as people read it: see `mtf.Operation.label`.
      filename, line: the operation's line.
      layers: how many there are.
      refusal: why they are not unrolled, or an empty text.
    """

    operation: str
    label: str
    filename: str
    line: int
    layers: int
    refusal: str

    @classmethod
    def all_of(cls, plan: Plan) -> Iterator[LayersRecord]:
        """Yields the loops of a plan, in program order."""
        for instruction, _ in walk(plan.instructions):
            if isinstance(instruction, Loop) and (unrolling := instruction.unrolling) is not None:
                operation, site = instruction.operation, instruction.operation.site
                if unrolling.is_unrolled or unrolling.refusal:
                    place = (site.filename, site.line)
                    yield cls(operation.name, operation.label, *place, instruction.length, unrolling.refusal)


@dataclasses.dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One collective.

    Attributes:
      kind: allreduce, allgather and so on.
      operation: the operation that asked for it. A bucket has its first member's.
      label: the operation as people read it: see `mtf.Operation.label`.
      filename, line, function: the operation's line. A bucket has its first member's.
      axes: the mesh axes along which data moves.
      cores: how many cores take part in each group.
      times: how often it runs, in loops.
      bytes_sent: bytes that each core sends, in all runs together.
      shape: the named shape of the tensor.
      layout, result_layout: the tensor's layout before and after.
      dtype: the tensor's dtype.
      reduction: "add" for a sum, another name for another reduction, or None.
      members: for a bucket, the collectives that travel in it.
      why: why the operation cannot work on slices, if it gathers for this reason.
      process_axes: the axes among `axes` that cross processes.
      bytes_between_processes: bytes that each process sends to others, with all its cores, in all runs together.
      stages: the steps of a collective that crosses processes.
    """

    kind: str
    operation: str
    filename: str
    line: int
    function: str
    axes: Axes
    cores: int
    times: int
    bytes_sent: int
    shape: str
    layout: str
    result_layout: str
    dtype: str
    reduction: str | None
    members: tuple[CollectiveRecord, ...] = ()
    why: str = ""
    process_axes: Axes = ()
    bytes_between_processes: int = 0
    stages: str = ""
    label: str = ""

    @classmethod
    def of(cls, collective: Collective, times: int, plan: Plan, layouts: LayoutTable) -> CollectiveRecord:
        step, before, after = collective.step, collective.input, collective.output
        axis_parts = layouts.axis_parts
        site = collective.operation.site
        return cls(
            kind=step.kind,
            operation=collective.operation.name,
            filename=site.filename,
            line=site.line,
            function=site.function,
            axes=axis_parts.axes_joined(step.axes),
            cores=axes_size(step.axes, plan.mesh_shape),
            times=times,
            bytes_sent=times * accounting.collective_bytes(collective, plan),
            shape=str(before.shape),
            layout=layout_text(before, axis_parts),
            result_layout=layout_text(after, axis_parts),
            dtype=before.dtype.name,
            reduction=step.reduction,
            members=tuple(cls.of(member, times, plan, layouts) for member in collective.members),
            why=layouts.gathers_because(collective.operation, step.axes) if isinstance(step, AllGather) else "",
            process_axes=axis_parts.axes_joined(crossing_axes(step.axes, plan.mesh_shape, plan.process_of_core)),
            bytes_between_processes=times * accounting.bytes_between_processes(collective, plan),
            stages=accounting.stages(collective, plan),
            label=collective.operation.label,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TrafficRecord:
    """All collectives of one kind over the same axes: how many there are, and the bytes that each core sends in
    them.
    """

    kind: str
    axes: Axes
    count: int
    bytes_sent: int

    @classmethod
    def of(cls, traffic: accounting.Traffic, axis_parts: AxisParts) -> TrafficRecord:
        return cls(traffic.kind, axis_parts.axes_joined(traffic.axes), traffic.count, traffic.bytes_sent)


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedWorkRecord:
    """Work of `operation`, at its line, that the `times` cores along `axes` all do. Each spends `flops`
    on it.
    """

    operation: str
    kind: str
    filename: str
    line: int
    function: str
    axes: Axes
    times: int
    flops: int
    label: str = ""

    @classmethod
    def of(cls, work: accounting.RepeatedWork, axis_parts: AxisParts) -> RepeatedWorkRecord:
        operation, site = work.compute.operation, work.compute.operation.site
        place = (site.filename, site.line, site.function)
        axes = axis_parts.axes_joined(work.axes)
        return cls(operation.name, work.compute.kind, *place, axes, work.times, work.flops, operation.label)


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Bytes on one core. `peak` includes variables and feeds. It is reached in `peak_operation`, at that line.

    Among the variables, `weights` are trained. `slots` are all others, such as the state of optimizers. `gradients` and
    `activations` (everything else) are the largest bytes of each at any time, and the two times may differ.
    `compiled_peak` is the peak of the same program compiled by XLA, as on a TPU, or None if nobody asked for it.
    """

    variables: int
    feeds: int
    peak: int
    peak_operation: str
    peak_filename: str
    peak_line: int
    weights: int
    slots: int
    gradients: int
    activations: int
    compiled_peak: int | None = None
    peak_label: str = ""

    @classmethod
    def of(cls, plan: Plan, trained: Collection[str]) -> MemoryRecord:
        """Returns the record of a plan. `trained`: names of the variables that are weights."""
        peak, working = peak_and_working_memory(plan)
        stored = accounting.stored_variables(plan)
        weights = sum(value.slice_bytes for variable, value in stored.items() if variable in trained)
        name = peak.operation.name if peak.operation else ""
        site = peak.operation.site if peak.operation else Site("", 0, "")
        return cls(
            variables=peak.variables,
            feeds=peak.feeds,
            peak=peak.total,
            peak_operation=name,
            peak_filename=site.filename,
            peak_line=site.line,
            weights=weights,
            slots=peak.variables - weights,
            gradients=working.gradients,
            activations=working.activations,
            peak_label=peak.operation.label if peak.operation else "",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A pipeline: its stages, the mesh axes that split them, and its schedule, in both passes.

    Attributes:
      operation: the name of its operation.
      label: the operation as people read it: see `mtf.Operation.label`.
      filename, line, function: the operation's line.
      axes: mesh axes that split the stages.
      stages, microbatches, rounds, steps: the sizes of its schedule.
      bubble: the share of stage-steps that compute nothing useful.
      times: how often all steps are taken, with backward steps.
      bytes_per_step: bytes that each core sends along `axes`, to the next stages, in a step of the forward pass.
      bytes_kept: bytes that each core keeps for the backward pass: the inputs and results of all steps. None without a
        backward pass.
      bytes_kept_in_stage: bytes of the results of a stage's layers, while the backward pass computes one step of it
        again. None without a backward pass.
    """

    operation: str
    filename: str
    line: int
    function: str
    axes: Axes
    stages: int
    microbatches: int
    rounds: int
    steps: int
    bubble: float
    times: int
    bytes_per_step: int
    bytes_kept: int | None
    bytes_kept_in_stage: int | None
    label: str = ""

    @classmethod
    def of(cls, pipeline: Pipeline, axis_parts: AxisParts) -> PipelineRecord:
        note, site, kept = pipeline.note, pipeline.operation.site, pipeline.kept
        return cls(
            operation=pipeline.operation.name,
            filename=site.filename,
            line=site.line,
            function=site.function,
            axes=axis_parts.axes_joined(pipeline.axes),
            stages=note.stage.size,
            microbatches=note.num_microbatches,
            rounds=note.num_rounds,
            steps=note.num_steps,
            bubble=note.bubble,
            times=pipeline.times,
            bytes_per_step=pipeline.bytes_per_step,
            bytes_kept=None if kept is None else kept.of_steps,
            bytes_kept_in_stage=None if kept is None else kept.in_stage,
            label=pipeline.operation.label,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedUpdateRecord:
    """A weight that several cores all keep and all update, and the reason why they do not divide the update."""

    name: str
    reason: str


def layout_text(value: Value, axis_parts: AxisParts) -> str:
    return axis_parts.layout_joined(value.layout).to_string(value.shape)
