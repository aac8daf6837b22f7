"""A program at one choice of sizes: its graph, lowered once, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf.function.tracing import Traced
from meshtf.graph.tensor import Tensor
from meshtf.lowering.execution import Execution
from meshtf.lowering.feeding import check_feeds, inputs_of
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.report.memory_check import check_memory
from meshtf.ops.side_effects.summaries import Summary, wanted_summaries, write_summaries

Prepared: TypeAlias = tuple[Execution, list[tf.Tensor], Sequence[Summary]]
"""The execution to run, the arrays to feed it, and the summaries that it returns beside the results."""


class PlannedProgram:
    """A program whose inputs have known sizes."""

    def __init__(self, lowering: Lowering, traced: Traced) -> None:
        self.lowering = lowering
        self.traced = traced
        self.fetches = traced.fetches
        self.execution: Execution = lowering.execution(self.fetches)
        self._fits_memory = False

    @property
    def name(self) -> str:
        return self.lowering.graph.name

    def check_memory(self, besides: int = 0) -> None:
        """Compares the program's need with the memory that is left, unless that was done before."""
        if not self._fits_memory:
            lowering = self.lowering
            check_memory(self.execution.plan, lowering.mesh_impl, self.name, lowering.variables, besides)
            self._fits_memory = True

    def prepared(self, feeds: Mapping[str, Any]) -> Prepared:
        """Checks the arrays of a call, by the names of their inputs, and makes ready what runs it."""
        self.check_memory()
        inputs = self.traced.inputs
        summaries, execution = wanted_summaries(self.lowering.graph), self.execution
        if summaries:
            execution = self.lowering.execution([*self.fetches, *(s.tensor for s in summaries)])
        needed = inputs_of(execution.plan)
        known = {**inputs, **{o.name: o for o in needed}}
        checked = check_feeds([*inputs.values()], feeds, known, self.name)
        by_operation = dict(zip(inputs.values(), checked, strict=True))
        arrays = [by_operation[o] if o in by_operation else check_feeds([o], {}, known, self.name)[0] for o in needed]
        return execution, arrays, summaries

    def returned(self, results: Sequence[tf.Tensor], summaries: Sequence[Summary]) -> Any:
        """Returns what the function returned, with arrays in place of its tensors. Summaries are written."""
        write_summaries(summaries, results[len(self.fetches) :])
        structure = self.traced.results
        if isinstance(structure, Tensor):  # the most frequent case; TensorFlow's walk takes ten times as long
            return results[0]
        fetched = iter(results)
        return tf.nest.map_structure(lambda x: next(fetched) if isinstance(x, Tensor) else x, structure)
