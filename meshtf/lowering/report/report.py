"""The report of a program on its mesh, as data: layouts, memory, every collective, repeated work. `str` gives text."""

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
    LayersRecord,
    LoopRecord,
    MemoryRecord,
    PipelineRecord,
    RepeatedUpdateRecord,
    RepeatedWorkRecord,
    TensorRecord,
    TrafficRecord,
)
from meshtf.lowering.report._report_text import render, render_html
from meshtf.lowering.report._whole_tensors import WholeTensorRecord, whole_tensors
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
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
    """The effect of weight-update sharding on a program's updates.

    trained: names of the weights. repeated: the weights whose updates are not divided, and why. plan_without: the plan
    in which no update is divided, if some are in this one.
    """

    trained: Collection[str] = ()
    repeated: Mapping[str, str] = dataclasses.field(default_factory=dict)
    plan_without: Plan | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The report of one program. Print it, or call `text(tensors=True)` or `to_dict()`.

    Attributes:
      program: its name.
      mesh: names and sizes of the mesh's axes.
      axis_parts: names and sizes of the parts of an axis, if different parts split different dimensions.
      cores: how many cores there are.
      process_of_core: the process of each core. Empty if one process has all.
      layout: the layout rules.
      parameter_layout: the rules for variables between steps.
      activation_layout: the rules that go before `layout` for activations.
      variables: the variables that the program reads or assigns.
      feeds: arrays handed to the program. Each core gets its part.
      results: the tensors that it returns. Their slices are put together on the first core.
      memory: memory on each core.
      memory_without_sharding: the memory if each core did the whole update of the weights that it keeps. None if each
        does.
      repeated_updates: weights whose updates are not divided among the cores that keep them, and why not.
      pipelines: the pipelines, in program order.
      loops: the loops that ask to be compiled by XLA as a whole, in program order.
      layers: the loops over layers of a backend that unrolls them, in program order.
      flops_per_core: 2*m*n*k for a matrix product, one per element of other work.
      collectives: every collective, in program order. A bucket is one, with its members.
      traffic: the same by kind and mesh axes, most bytes first.
      repeated_work: work that several cores all do, in program order.
      whole_tensors: tensors of more than a hundredth of the peak that every core holds whole, and why; the largest
        first.
      padding: memory and work spent on padding, by dimensions that do not divide, most work first.
      tensors: every tensor that is computed, in its own layout.
      operations: the work of each core, instruction by instruction, and its cost; see `OperationRecord`.
      memory_timeline: memory by kind, while each operation outside of loops runs.
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
    layers: tuple[LayersRecord, ...]
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
        """Returns the report of a plan. `operations`: the graph that it was made from. `fetches`: the tensors
        that it returns.
        """
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
            layers=tuple(LayersRecord.all_of(plan)),
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
        """The number of processes that have the cores."""
        return max(self.process_of_core, default=0) + 1

    @property
    def bytes_sent_per_core(self) -> int:
        """Bytes that each core sends in all collectives together."""
        return sum(c.bytes_sent for c in self.collectives)

    @property
    def gathers_for_want(self) -> tuple[CollectiveRecord, ...]:
        """The gathers of operations that cannot work on slices. Each record says why the operation cannot."""
        each = [c for bucket in self.collectives for c in bucket.members or (bucket,)]
        return tuple(c for c in each if c.why)

    @property
    def bytes_between_processes(self) -> int:
        """Bytes that each process sends to others in all collectives together."""
        return sum(c.bytes_between_processes for c in self.collectives)

    @property
    def repeated_flops_per_core(self) -> int:
        """The share of `flops_per_core` that other cores compute as well, in FLOPs."""
        return sum(w.flops for w in self.repeated_work)

    def text(self, *, tensors: bool = False, width: int = 120) -> str:
        """Returns text for people, in lines of at most `width` characters. `tensors` adds a table of every tensor."""
        return render(self, tensors=tensors, width=width)

    def to_dict(self, *, tensors: bool = True, operations: bool = True) -> dict[str, Any]:
        """Returns dictionaries, lists, texts and numbers, fit for JSON.

        `tensors=False` leaves out that list. `operations=False` leaves out the lists of operations and of memory over
        time.
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

    def _repr_html_(self) -> str:
        return render_html(self)


def _tensor_record(tensor: Tensor, layouts: LayoutTable) -> TensorRecord:
    layout, shape, dtype = layouts[tensor], tensor.shape, tensor.dtype
    own = math.prod(layout.slice_shape(shape, layouts.mesh_shape)) * dtype.size
    text = layouts.axis_parts.layout_joined(layout).to_string(shape)
    return TensorRecord(tensor.name, str(shape), text, dtype.name, own, shape.size * dtype.size)


def _plain(x: Any) -> Any:
    if dataclasses.is_dataclass(x):
        return {f.name: _plain(getattr(x, f.name)) for f in dataclasses.fields(x)}
    return [_plain(y) for y in x] if isinstance(x, tuple) else x
