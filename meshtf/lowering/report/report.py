"""What a program does on its mesh, as data: layouts, memory, every collective, repeated work. `str` gives text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutRules
from meshtf.lowering.report import accounting
from meshtf.lowering.report._padding import PaddingRecord, padding_records
from meshtf.lowering.report._pipelines import pipelines
from meshtf.lowering.report._records import (
    CollectiveRecord,
    LoopRecord,
    MemoryRecord,
    PipelineRecord,
    RepeatedUpdateRecord,
    RepeatedWorkRecord,
    TensorRecord,
    TrafficRecord,
)
from meshtf.lowering.report._report_text import render
from meshtf.lowering.report._whole_tensors import WholeTensorRecord, whole_tensors
from meshtf.lowering.report.compiled_memory import compiled_peak_memory
from meshtf.lowering.report.operation_records import (
    MemoryMoment,
    OperationRecord,
    memory_moments,
    operation_records,
)
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Plan


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
      process_of_core: the process of each; empty where one has all.
      layout: the rules. parameter_layout: those for variables between steps. activation_layout: those that count for
        activations before them.
      variables: that the program reads or assigns.
      feeds: arrays handed to it, of which each core gets its part.
      results: what it returns; the slices are put together on the first core.
      memory: on each core. memory_without_sharding: what it would be if each core did the whole update of the weights
        that it keeps; None where that is what is done.
      repeated_updates: weights whose updates are not divided among the cores that keep them, and why not.
      pipelines: in program order.
      loops: those that ask to be compiled by XLA as a whole, in program order.
      flops_per_core: 2*m*n*k for a matrix product, one per element of other work.
      collectives: every one, in program order; several small ones may travel as one, a bucket.
      traffic: the same by kind and mesh axes, most bytes first.
      repeated_work: what several cores do alike, in program order.
      whole_tensors: what every core holds whole, of more than a hundredth of the peak, and why; the largest first.
      padding: what cores hold and compute in vain, by dimensions that do not divide, most work first.
      tensors: every tensor that is computed, in its own layout.
      operations: what each core does, instruction by instruction, and what it costs; see `OperationRecord`.
      memory_timeline: memory by kind, while each operation runs that stands in no loop.
    """

    program: str
    mesh: tuple[tuple[str, int], ...]
    axis_parts: tuple[tuple[str, int], ...]
    cores: int
    process_of_core: tuple[int, ...]
    layout: str
    parameter_layout: str
    activation_layout: str
    variables: tuple[TensorRecord, ...]
    feeds: tuple[TensorRecord, ...]
    results: tuple[TensorRecord, ...]
    memory: MemoryRecord
    memory_without_sharding: MemoryRecord | None
    repeated_updates: tuple[RepeatedUpdateRecord, ...]
    pipelines: tuple[PipelineRecord, ...]
    loops: tuple[LoopRecord, ...]
    flops_per_core: int
    collectives: tuple[CollectiveRecord, ...]
    traffic: tuple[TrafficRecord, ...]
    repeated_work: tuple[RepeatedWorkRecord, ...]
    whole_tensors: tuple[WholeTensorRecord, ...]
    padding: tuple[PaddingRecord, ...]
    tensors: tuple[TensorRecord, ...]
    operations: tuple[OperationRecord, ...]
    memory_timeline: tuple[MemoryMoment, ...]

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
        memory = MemoryRecord.of(plan, updates.trained)
        if operations:
            memory = dataclasses.replace(memory, compiled_peak=compiled_peak_memory(plan).total)
        names = [t.name for t in fetches] or [f"result_{i}" for i in range(len(plan.fetches))]
        return cls(
            program=program,
            mesh=tuple((d.name, d.size) for d in layouts.whole_mesh_shape),
            axis_parts=tuple((p.name, p.size) for _, own in axis_parts.parts for p in own),
            cores=plan.mesh_shape.size,
            process_of_core=plan.process_of_core,
            layout=str(layouts.rules),
            parameter_layout=str(layouts.rules if parameter_rules is None else parameter_rules),
            activation_layout=str(layouts.rule_set.activations),
            variables=tuple(TensorRecord.of(name, value, axis_parts) for name, value in stored.items()),
            feeds=tuple(TensorRecord.of(f.name, f.output, axis_parts) for f in plan.feeds),
            results=tuple(TensorRecord.of(n, v, axis_parts) for n, v in zip(names, plan.fetches, strict=True)),
            memory=memory,
            memory_without_sharding=None if without is None else MemoryRecord.of(without, updates.trained),
            repeated_updates=tuple(
                RepeatedUpdateRecord(*item) for item in updates.repeated.items() if item[0] in stored
            ),
            pipelines=tuple(PipelineRecord.of(p, axis_parts) for p in pipelines(plan)),
            loops=tuple(LoopRecord.all_of(plan)),
            flops_per_core=accounting.flops(plan),
            collectives=tuple(
                CollectiveRecord.of(c, times, plan, layouts) for c, times in accounting.collectives(plan)
            ),
            traffic=tuple(TrafficRecord.of(t, axis_parts) for t in accounting.traffic(plan)),
            repeated_work=tuple(RepeatedWorkRecord.of(w, axis_parts) for w in accounting.repeated_work(plan)),
            whole_tensors=tuple(whole_tensors(plan, layouts, memory.peak)),
            padding=tuple(padding_records(plan, axis_parts)),
            tensors=tuple(_tensor_record(t, layouts) for o in operations for t in o.outputs),
            operations=tuple(operation_records(plan)),
            memory_timeline=tuple(memory_moments(plan, updates.trained)),
        )

    @property
    def processes(self) -> int:
        """How many the cores are in."""
        return max(self.process_of_core, default=0) + 1

    @property
    def bytes_sent_per_core(self) -> int:
        """In all collectives together."""
        return sum(c.bytes_sent for c in self.collectives)

    @property
    def gathers_for_want(self) -> tuple[CollectiveRecord, ...]:
        """The gathers that are there for want of a way to work on slices; each says why there is none."""
        each = [c for bucket in self.collectives for c in bucket.members or (bucket,)]
        return tuple(c for c in each if c.why)

    @property
    def bytes_between_processes(self) -> int:
        """Sent by each process to others, in all collectives together."""
        return sum(c.bytes_between_processes for c in self.collectives)

    @property
    def repeated_flops_per_core(self) -> int:
        """Of `flops_per_core`, those that other cores do as well."""
        return sum(w.flops for w in self.repeated_work)

    def text(self, *, tensors: bool = False, width: int = 120) -> str:
        """As text for people, in lines of at most `width` characters; `tensors` adds a table of every tensor."""
        return render(self, tensors=tensors, width=width)

    def to_dict(self, *, tensors: bool = True, operations: bool = True) -> dict[str, Any]:
        """As dictionaries, lists, texts and numbers, fit for JSON.

        `tensors=False` leaves that list out, and `operations=False` that of operations and memory over time.
        """
        data = _plain(self)
        data |= {
            "processes": self.processes,
            "bytes_sent_per_core": self.bytes_sent_per_core,
            "bytes_between_processes": self.bytes_between_processes,
            "repeated_flops_per_core": self.repeated_flops_per_core,
        }
        if not tensors:
            del data["tensors"]
        if not operations:
            del data["operations"], data["memory_timeline"]
        return data

    def __str__(self) -> str:
        return self.text()


def _tensor_record(tensor: Tensor, layouts: LayoutTable) -> TensorRecord:
    layout, shape, dtype = layouts[tensor], tensor.shape, tensor.dtype
    own = math.prod(layout.slice_shape(shape, layouts.mesh_shape)) * dtype.size
    text = layouts.axis_parts.layout_joined(layout).to_string(shape)
    return TensorRecord(tensor.name, str(shape), text, dtype.name, own, shape.size * dtype.size)


def _plain(x: Any) -> Any:
    if dataclasses.is_dataclass(x):
        return {f.name: _plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
    return [_plain(y) for y in x] if isinstance(x, tuple) else x
