"""Records the instructions of a plan, or of a block in it, as they are added: one list, in program order.

Each instruction belongs to an operation. Reports and errors name that operation's line in the user's code. `operation`
is the one being lowered. Code that adds an instruction for another operation does so inside `on_behalf_of`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.local_work.wide_terms import made_wide, term_dtype
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.plan import Collective, Compute, Emit, Instruction, OutputSpec, Value


class PlanRecord:
    """The instructions so far, the values that they make, and the operation that they belong to.

    Args:
      mesh_shape: the shape of the plan's mesh.
      numbers: the numbers of new values. A block shares the counter of the plan around it.
    """

    def __init__(self, mesh_shape: Shape, numbers: Iterator[int] | None = None) -> None:
        self.mesh_shape = mesh_shape
        self._numbers = itertools.count() if numbers is None else numbers
        self._instructions: list[Instruction] = []
        self._operation: Operation | None = None

    def of_block(self) -> PlanRecord:
        """An empty record for the instructions of a block, which at first belong to the same operation."""
        record = PlanRecord(self.mesh_shape, self._numbers)
        record._operation = self._operation
        return record

    @property
    def operation(self) -> Operation:
        """The operation that is being lowered, or on behalf of which something is added."""
        assert self._operation is not None
        return self._operation

    @operation.setter
    def operation(self, operation: Operation) -> None:
        self._operation = operation

    @contextlib.contextmanager
    def on_behalf_of(self, operation: Operation) -> Iterator[None]:
        """Makes new instructions belong to `operation` until the `with` block ends."""
        before, self._operation = self._operation, operation
        try:
            yield
        finally:
            self._operation = before

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(self._instructions)

    def add(self, instruction: Instruction) -> None:
        """Adds an existing instruction."""
        self._instructions.append(instruction)

    def value(self, shape: Shape, dtype: tf.DType, layout: TensorLayout, pending: Axes = ()) -> Value:
        """Makes a new value, which an instruction computes or a block receives."""
        return Value(next(self._numbers), shape, dtype, layout, pending, layout.slice_shape(shape, self.mesh_shape))

    def compute(
        self,
        kind: str,
        emit: Emit,
        inputs: Sequence[Value],
        outputs: Sequence[OutputSpec],
        *,
        pending: Axes = (),
        flops: int = 0,
        facts: WorkFacts = NOTHING_KNOWN,
    ) -> tuple[Value, ...]:
        """Adds local work; see `Planner.compute`."""
        specs = [spec if len(spec) == 4 else (*spec, pending) for spec in outputs]
        dtypes = [term_dtype(dtype) if left else dtype for _, dtype, _, left in specs]
        if any(dtype != spec[1] for dtype, spec in zip(dtypes, specs, strict=True)):
            emit = made_wide(emit, dtypes)
        values = tuple(self.value(s[0], dtype, s[2], s[3]) for dtype, s in zip(dtypes, specs, strict=True))
        self.add(Compute(self.operation, kind, tuple(inputs), values, emit, flops, facts))
        return values

    def collective(self, step: CollectiveStep, value: Value, layout: TensorLayout, pending: Axes) -> Value:
        """Adds communication, and returns its result in this layout, with sums over `pending` still pending."""
        output = self.value(value.shape, value.dtype, layout, pending)
        self.add(Collective(self.operation, step, value, output))
        return output
