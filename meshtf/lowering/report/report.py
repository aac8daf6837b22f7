"""What a program does on its mesh, as data: layouts, memory, every collective, repeated work. `str` gives text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import Site
from meshtf.graph import Operation, Tensor
from meshtf.layout import Axes, LayoutRules, axes_size
from meshtf.lowering.report import accounting
from meshtf.lowering.report.pipelines import Pipeline, pipelines
from meshtf.planning.layout_table import LayoutTable
from meshtf.planning.plan import Collective, Plan, Value


@dataclasses.dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor on the mesh, or a variable. `layout` is its named shape with the mesh axes that split it.

    Where two dimensions are split by parts of one axis, `data` say, these are `data.0` and `data.1`.
    """

    name: str
    shape: str
    layout: str
    dtype: str
    bytes_per_core: int
    bytes_whole: int

    @classmethod
    def of(cls, name: str, value: Value, axis_parts: AxisParts) -> TensorRecord:
        layout = _layout_text(value, axis_parts)
        whole = value.shape.size * value.dtype.size
        return cls(name, str(value.shape), layout, value.dtype.name, value.slice_bytes, whole)


@dataclasses.dataclass(frozen=True, slots=True)
class CollectiveRecord:
    """One collective.

    operation: which asked for it. filename, line, function: the user's. axes: over which mesh axes; cores: how many
    take part in each group. times: how often it runs, in loops. bytes_sent: by each core, in all of them. layout,
    result_layout: of the tensor before and after. members: of a bucket, the collectives that travel in it as one; its
    own operation and line are then those of the first.
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

    @classmethod
    def of(cls, collective: Collective, times: int, plan: Plan, axis_parts: AxisParts) -> CollectiveRecord:
        step, before, after = collective.step, collective.input, collective.output
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
            layout=_layout_text(before, axis_parts),
            result_layout=_layout_text(after, axis_parts),
            dtype=before.dtype.name,
            reduction=step.reduction if step.kind in ("all_reduce", "reduce_scatter") else None,
            members=tuple(cls.of(member, times, plan, axis_parts) for member in collective.members),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TrafficRecord:
    """Collectives of one kind over the same axes: how many, and the bytes that each core sends in them."""

    kind: str
    axes: Axes
    count: int
    bytes_sent: int

    @classmethod
    def of(cls, traffic: accounting.Traffic, axis_parts: AxisParts) -> TrafficRecord:
        return cls(traffic.kind, axis_parts.axes_joined(traffic.axes), traffic.count, traffic.bytes_sent)


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedWorkRecord:
    """Work of `operation`, at the user's line, that `times` cores, those along `axes`, do alike. `flops`: of each."""

    operation: str
    kind: str
    filename: str
    line: int
    function: str
    axes: Axes
    times: int
    flops: int

    @classmethod
    def of(cls, work: accounting.RepeatedWork, axis_parts: AxisParts) -> RepeatedWorkRecord:
        operation, site = work.compute.operation, work.compute.operation.site
        place = (site.filename, site.line, site.function)
        axes = axis_parts.axes_joined(work.axes)
        return cls(operation.name, work.compute.kind, *place, axes, work.times, work.flops)


@dataclasses.dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Bytes on one core. `peak` includes variables and feeds; it is reached in `peak_operation`, at the user's line.

    Of the variables, `weights` are trained, and `slots` are the state of optimizers and what else is not. `gradients`
    and `activations` (all else) are the most of each that is there at once, which need not be at the same time.
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

    @classmethod
    def of(cls, plan: Plan, trained: Collection[str]) -> MemoryRecord:
        """`trained`: names of the variables that are weights."""
        peak, working = accounting.peak_memory(plan), accounting.working_memory(plan)
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
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PipelineRecord:
    """A pipeline: its stages, over the mesh `axes` that split them, and its schedule, in both passes.

    bubble: the share of stage-steps that compute nothing useful. times: how often all steps are taken, backward ones
    included. bytes_per_step: that each core sends along `axes`, to the next stages, in a step of the forward pass.
    bytes_kept: on each core for the backward pass, of all steps, what they are given and make; bytes_kept_in_stage:
    what a stage's layers make, as the backward pass computes one step of it again. None without a backward pass.
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
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RepeatedUpdateRecord:
    """A weight that several cores keep alike and update alike, and why they do not divide the update."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Updates:
    """What sharding of the weight updates did to a program.

    trained: names of the weights. repeated: those whose updates are not divided, and why not. plan_without: the plan in
    which none is, where some are.
    """

    trained: Collection[str] = ()
    repeated: Mapping[str, str] = dataclasses.field(default_factory=dict)
    plan_without: Plan | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The report of one program. `print` it, ask for `text(tensors=True)`, or for `to_dict()`.

    Attributes:
      program: its name.
      mesh: names and sizes of the mesh's axes. axis_parts: the same of the parts of those axes of which each part
        splits a dimension of its own, somewhere.
      cores: how many there are.
      layout: the rules. parameter_layout: those for variables between steps.
      variables: that the program reads or assigns.
      feeds: arrays handed to it, whole, on every core.
      results: what it returns; the slices are put together on the first core.
      memory: on each core. memory_without_sharding: what it would be if each core did the whole update of the weights
        that it keeps; None where that is what is done.
      repeated_updates: weights whose updates are not divided among the cores that keep them, and why not.
      pipelines: in program order.
      flops_per_core: 2*m*n*k for a matrix product, one per element of other work.
      collectives: every one, in program order; several small ones may travel as one, a bucket.
      traffic: the same by kind and mesh axes, most bytes first.
      repeated_work: what several cores do alike, in program order.
      tensors: every tensor that is computed, in its own layout.
    """

    program: str
    mesh: tuple[tuple[str, int], ...]
    axis_parts: tuple[tuple[str, int], ...]
    cores: int
    layout: str
    parameter_layout: str
    variables: tuple[TensorRecord, ...]
    feeds: tuple[TensorRecord, ...]
    results: tuple[TensorRecord, ...]
    memory: MemoryRecord
    memory_without_sharding: MemoryRecord | None
    repeated_updates: tuple[RepeatedUpdateRecord, ...]
    pipelines: tuple[PipelineRecord, ...]
    flops_per_core: int
    collectives: tuple[CollectiveRecord, ...]
    traffic: tuple[TrafficRecord, ...]
    repeated_work: tuple[RepeatedWorkRecord, ...]
    tensors: tuple[TensorRecord, ...]

    @classmethod
    def of(
        cls,
        plan: Plan,
        layouts: LayoutTable,
        program: str,
        *,
        operations: Sequence[Operation] = (),
        fetches: Sequence[Tensor] = (),
        parameter_rules: LayoutRules | None = None,
        updates: Updates | None = None,
    ) -> Report:
        """The report of a plan, of the `operations` that it was made from, and of what it returns."""
        stored = accounting.stored_variables(plan)
        updates = updates or Updates()
        without, axis_parts = updates.plan_without, layouts.axis_parts
        names = [t.name for t in fetches] or [f"result_{i}" for i in range(len(plan.fetches))]
        return cls(
            program=program,
            mesh=tuple((d.name, d.size) for d in layouts.whole_mesh_shape),
            axis_parts=tuple((p.name, p.size) for _, own in axis_parts.parts for p in own),
            cores=plan.mesh_shape.size,
            layout=str(layouts.rules),
            parameter_layout=str(layouts.rules if parameter_rules is None else parameter_rules),
            variables=tuple(TensorRecord.of(name, value, axis_parts) for name, value in stored.items()),
            feeds=tuple(TensorRecord.of(f.name, f.output, axis_parts) for f in plan.feeds),
            results=tuple(TensorRecord.of(n, v, axis_parts) for n, v in zip(names, plan.fetches, strict=True)),
            memory=MemoryRecord.of(plan, updates.trained),
            memory_without_sharding=None if without is None else MemoryRecord.of(without, updates.trained),
            repeated_updates=tuple(
                RepeatedUpdateRecord(*item) for item in updates.repeated.items() if item[0] in stored
            ),
            pipelines=tuple(PipelineRecord.of(p, axis_parts) for p in pipelines(plan)),
            flops_per_core=accounting.flops(plan),
            collectives=tuple(
                CollectiveRecord.of(c, times, plan, axis_parts) for c, times in accounting.collectives(plan)
            ),
            traffic=tuple(TrafficRecord.of(t, axis_parts) for t in accounting.traffic(plan)),
            repeated_work=tuple(RepeatedWorkRecord.of(w, axis_parts) for w in accounting.repeated_work(plan)),
            tensors=tuple(_tensor_record(t, layouts) for o in operations for t in o.outputs),
        )

    @property
    def bytes_sent_per_core(self) -> int:
        """In all collectives together."""
        return sum(c.bytes_sent for c in self.collectives)

    @property
    def repeated_flops_per_core(self) -> int:
        """Of `flops_per_core`, those that other cores do as well."""
        return sum(w.flops for w in self.repeated_work)

    def text(self, *, tensors: bool = False, width: int = 120) -> str:
        """As text for people, in lines of at most `width` characters; `tensors` adds a table of every tensor."""
        from meshtf.lowering.report.report_text import render

        return render(self, tensors=tensors, width=width)

    def to_dict(self, *, tensors: bool = True) -> dict[str, Any]:
        """As dictionaries, lists, texts and numbers, fit for JSON. `tensors=False` leaves that list out."""
        data = _plain(self)
        data |= {
            "bytes_sent_per_core": self.bytes_sent_per_core,
            "repeated_flops_per_core": self.repeated_flops_per_core,
        }
        if not tensors:
            del data["tensors"]
        return data

    def __str__(self) -> str:
        return self.text()


def _tensor_record(tensor: Tensor, layouts: LayoutTable) -> TensorRecord:
    layout, shape, dtype = layouts[tensor], tensor.shape, tensor.dtype
    own = math.prod(layout.slice_shape(shape, layouts.mesh_shape)) * dtype.size
    text = layouts.axis_parts.layout_joined(layout).to_string(shape)
    return TensorRecord(tensor.name, str(shape), text, dtype.name, own, shape.size * dtype.size)


def _layout_text(value: Value, axis_parts: AxisParts) -> str:
    return axis_parts.layout_joined(value.layout).to_string(value.shape)


def _plain(x: Any) -> Any:
    if dataclasses.is_dataclass(x):
        return {f.name: _plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
    return [_plain(y) for y in x] if isinstance(x, tuple) else x
