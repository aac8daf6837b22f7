"""The plan of a program: pure data that says, instruction by instruction, what every core does.

A plan is one list for all cores. It has three kinds of readers. Emission turns it into one traced TensorFlow function.
The interpreter executes it in lockstep in one thread. The report and the accounting only inspect it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import MeshtfError
from meshtf.graph.operation import Operation
from meshtf.host_array import host_array
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.local_work.work_facts import NOTHING_KNOWN, WorkFacts
from meshtf.planning.pipeline_note import PipelineNote
from meshtf.planning.plan_html import plan_html
from meshtf.planning.process_spans import ProcessOfCore

Cut: TypeAlias = tuple[int, Axes, int]
"""(dimension, mesh axes, size): the core's position along the axes, times the size."""


class Core(Protocol):
    """The core on which a local computation runs, as the computation sees it."""

    def coordinate(self, axes: Axes) -> tf.Tensor:
        """Row-major position of this core along these mesh axes, an int32 scalar."""
        ...

    def begin(self, rank: int, cuts: tuple[Cut, ...]) -> tf.Tensor:
        """The first position of a slice in each dimension, int32 [rank]: the sum of the dimension's cuts, or 0."""
        ...

    def transposed(self, x: tf.Tensor, permutation: Sequence[int]) -> tf.Tensor:
        """`tf.transpose`, done once for a tensor that several operations need in the same order."""
        ...

    def reshaped(self, x: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
        """`tf.reshape`, or the tensor itself where it has these sizes."""
        ...

    def product_dtype(self, dtype: tf.DType) -> tf.DType:
        """The type in which to multiply matrices of a type, so that sums of products are rounded once, to nearest."""
        ...

    @property
    def convolves_bfloat16(self) -> bool:
        """Whether the device has sound kernels that convolve bfloat16 and round each sum once."""
        ...

    def multiplies_matrices(self, dtype: tf.DType) -> bool:
        """Whether the device has a kernel for products of matrices of a type that TensorFlow multiplies."""
        ...

    def summed(self, x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
        """The sum over ascending axes, in parts where the device would add many rows one after another."""
        ...


Emit: TypeAlias = Callable[..., Any]
"""`emit(core, *slices)` returns the output slice, or slices, of one core."""


@runtime_checkable
class HasModule(Protocol):
    """Local work for which some platform has its own kernel."""

    def __call__(self, core: Core, *slices: tf.Tensor) -> Any:
        """Computes the slice, or slices, of one core with TensorFlow's documented operations."""
        ...

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        """The text of a StableHLO module that does the same there, or None if the platform has no kernel for it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the plan: each core holds one slice of it, or one term of it where a sum is pending."""

    index: int
    shape: Shape
    dtype: tf.DType
    layout: TensorLayout
    pending: Axes
    slice_shape: tuple[int, ...]

    @property
    def slice_bytes(self) -> int:
        size = 1
        for n in self.slice_shape:
            size *= n
        return size * self.dtype.size

    def __str__(self) -> str:
        pending = f" (sum over {'+'.join(self.pending)} pending)" if self.pending else ""
        return f"%{self.index} [{self.layout.to_string(self.shape)}] {self.dtype.name}{pending}"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Local work of every core.

    kind: its name in reports, which may be a name that a user gave. Passes decide by `facts`.
    """

    operation: Operation
    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    emit: Emit
    flops: int = 0
    facts: WorkFacts = NOTHING_KNOWN

    def bytes_of(self, value: Value) -> int:
        """The bytes that it reads or writes of an input or an output. If it uses only a part of a sum, or only some
        rows of a table, only the bytes of that part or of those rows count."""
        if self.facts.rows_touched and value.slice_shape and value.slice_shape[0] > self.facts.rows_touched:
            return value.slice_bytes // value.slice_shape[0] * self.facts.rows_touched
        adds_to_it = self.facts.adds_to_part and value in (self.inputs[0], self.outputs[0])
        return self.inputs[1].slice_bytes if adds_to_it else value.slice_bytes


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """Communication on behalf of `operation`.

    members: the collectives that travel together in this one, if it is a bucket. Their inputs are packed into its own.
    """

    operation: Operation
    step: CollectiveStep
    input: Value
    output: Value
    members: tuple[Collective, ...] = ()

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.input,)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (self.output,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """An array that is fed to the program. Each core receives its slice, padded with zeros where a dimension does not
    divide."""

    operation: Operation
    name: str
    output: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return ()

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (self.output,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReadVariable:
    """Reads a variable's slice as it is when the program starts."""

    operation: Operation
    name: str
    output: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return ()

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (self.output,)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class AssignVariable:
    """Assigns the slice that a variable has when the program ends."""

    operation: Operation
    name: str
    input: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.input,)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """A value that a loop carries: before the loop, at the start and at the end of an iteration, and after the loop."""

    initial: Value
    entering: Value
    leaving: Value
    result: Value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sliced:
    """A value that a loop reads slice by slice along a dimension, one slice in each iteration."""

    whole: Value
    dim: int
    part: Value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stacked:
    """A value that a loop makes slice by slice along the first dimension, one slice in each iteration."""

    part: Value
    whole: Value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Decides whether a loop continues, from the carried values and the number of iterations so far. Its instructions
    compute a bool scalar, equal on all cores."""

    entering: tuple[Value, ...]
    instructions: tuple[Instruction, ...]
    goes_on: Value


@dataclasses.dataclass(frozen=True, slots=True)
class LoopCompilation:
    """The compilation of a loop for which the user requested one function compiled by XLA.

    refusal: why the loop is not compiled, as words that follow its name; empty if it is compiled. is_joint: whether it
    is one function for all cores, collectives included, and not a function that each core calls.
    """

    refusal: str = ""
    is_joint: bool = False

    @property
    def is_of_each_core(self) -> bool:
        """Whether each core calls a function of its own."""
        return not self.refusal and not self.is_joint


@dataclasses.dataclass(frozen=True, slots=True)
class LoopUnrolling:
    """The unrolling of a loop over the layers of a stack.

    computes_again: whether its iterations recompute values that the forward pass did not keep. is_unrolled: whether the
    program contains its layers one by one. refusal: why it does not, as words that follow the loop's name; empty if it
    does, or if nobody requested it.
    """

    computes_again: bool
    is_unrolled: bool = False
    refusal: str = ""


UNBOUNDED = 2**31 - 1
"""The length of a loop whose number of iterations is not known."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Instructions that are repeated. They may use values from outside the loop directly.

    Attributes:
      length: the largest number of iterations, and the exact number if the loop has neither a count nor a condition.
      count: the number of iterations, an int32 scalar, if it is known before the loop.
      condition: decides before each iteration whether it runs, if the count is not known before the loop.
      index: the iteration number that the program sees: from the last to 0 in a reversed loop.
      trips: the number of iterations that were made.
      pipeline: the facts about the iterations where they are the steps of a pipeline.
      compilation: whether the loop is compiled, where it asks for that.
      unrolling: whether the loop is unrolled, where its iterations are the layers of a stack.
      may_overrun: whether iterations after the last one change no result except `trips`.
    """

    operation: Operation
    length: int
    count: Value | None
    condition: Condition | None
    is_reversed: bool
    index: Value
    carried: tuple[Carried, ...]
    sliced: tuple[Sliced, ...]
    stacked: tuple[Stacked, ...]
    body: tuple[Instruction, ...]
    trips: Value
    pipeline: PipelineNote | None = None
    compilation: LoopCompilation | None = None
    unrolling: LoopUnrolling | None = None
    may_overrun: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether the largest number of iterations is known."""
        return self.length < UNBOUNDED

    @property
    def inputs(self) -> tuple[Value, ...]:
        bound = {self.index, *(c.entering for c in self.carried), *(s.part for s in self.sliced)}
        own = [*(c.initial for c in self.carried), *(s.whole for s in self.sliced)]
        own += [self.count] if self.count is not None else []
        returned = [*(c.leaving for c in self.carried), *(s.part for s in self.stacked)]
        captured = free_values(self.body, bound, returned)
        if self.condition is not None:
            condition = self.condition
            bound = {self.index, *condition.entering}
            captured += free_values(condition.instructions, bound, [condition.goes_on])
        return tuple(dict.fromkeys([*own, *captured]))

    @property
    def outputs(self) -> tuple[Value, ...]:
        return (*(c.result for c in self.carried), *(s.whole for s in self.stacked), self.trips)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One of two lists of instructions, selected by a bool scalar that is equal on all cores."""

    operation: Operation
    predicate: Value
    if_true: tuple[Instruction, ...]
    if_false: tuple[Instruction, ...]
    true_results: tuple[Value, ...]
    false_results: tuple[Value, ...]
    results: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        captured = free_values(self.if_true, set(), self.true_results)
        captured += free_values(self.if_false, set(), self.false_results)
        return tuple(dict.fromkeys([self.predicate, *captured]))

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.results


def free_values(instructions: Sequence[Instruction], bound: set[Value], returned: Sequence[Value]) -> list[Value]:
    """Values that instructions use, or return, and do not make."""
    made = bound | {v for i in instructions for v in i.outputs}
    used = [*(v for i in instructions for v in i.inputs), *returned]
    return [v for v in dict.fromkeys(used) if v not in made]


def used_directly(instruction: Instruction) -> Iterator[Value]:
    """The values that an instruction itself uses, without the values that only its nested instructions use."""
    if isinstance(instruction, Loop):
        yield from (v for c in instruction.carried for v in (c.initial, c.leaving))
        yield from (s.whole for s in instruction.sliced)
        yield from (s.part for s in instruction.stacked)
        yield from [instruction.count] if instruction.count is not None else []
        yield from [instruction.condition.goes_on] if instruction.condition is not None else []
    elif isinstance(instruction, Branch):
        yield from (instruction.predicate, *instruction.true_results, *instruction.false_results)
    else:
        yield from instruction.inputs


def nested(instruction: Instruction) -> tuple[Instruction, ...]:
    """The instructions inside a loop or a branch."""
    if isinstance(instruction, Loop):
        return (*(instruction.condition.instructions if instruction.condition else ()), *instruction.body)
    if isinstance(instruction, Branch):
        return (*instruction.if_true, *instruction.if_false)
    return ()


def with_nested_changed(
    instruction: Instruction, change: Callable[[tuple[Instruction, ...]], tuple[Instruction, ...]]
) -> Instruction:
    """A loop or a branch with other instructions inside; anything else as it is."""
    if isinstance(instruction, Loop):
        asked = instruction.condition
        condition = asked and dataclasses.replace(asked, instructions=change(asked.instructions))
        return dataclasses.replace(instruction, body=change(instruction.body), condition=condition)
    if isinstance(instruction, Branch):
        if_true, if_false = change(instruction.if_true), change(instruction.if_false)
        return dataclasses.replace(instruction, if_true=if_true, if_false=if_false)
    return instruction


def walk(instructions: Sequence[Instruction], times: int = 1) -> Iterator[tuple[Instruction, int]]:
    """Instructions and their nested instructions, each with the largest number of times that it runs. An unknown number
    of iterations counts as one."""
    for instruction in instructions:
        yield instruction, times
        if inside := nested(instruction):
            repeats = instruction.length if isinstance(instruction, Loop) and instruction.is_bounded else 1
            yield from walk(inside, times * repeats)


Instruction: TypeAlias = Compute | Collective | Feed | ReadVariable | AssignVariable | Loop | Branch


NOWHERE = 2**63 - 1
"""The place that a core reports if its part of the check did not fail."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The place where a check failed first, in a plan that was made to find it.

    Attributes:
      value: int64 [cores], split over the mesh axes along which cores check different parts: the first place where each
        core's part failed, or NOWHERE. The smallest value is the first failure.
      described: converts that number into words, such as "batch 3, length 5".
    """

    value: Value
    described: Callable[[int], str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Check:
    """A flag (bool scalar, equal on all cores) that must be true for the step's assignments to take place.

    Attributes:
      operation: the operation that checks.
      message: the description of the fault if it fails.
      value: the flag.
      error: the class of the error to raise.
      can_find: whether a plan can be made that finds where it failed.
      finding: the place where it failed, in such a plan.
      advice: what the user can do, if there is something to say.
    """

    operation: Operation
    message: str
    value: Value
    error: type[MeshtfError]
    can_find: bool = False
    finding: Finding | None = None
    advice: str = ""

    @property
    def text(self) -> str:
        """The message of a failure, without its place."""
        return failure_text(self.message, self.operation, self.advice)

    def failure(self, place: int = NOWHERE) -> MeshtfError:
        """The error to raise, with where it failed if that is known."""
        if self.finding is None or place == NOWHERE:
            return self.error(self.text)
        fact = f"{self.message}: {self.finding.described(place)}"
        return self.error(failure_text(fact, self.operation, self.advice))


def failure_text(fact: str, operation: Operation, advice: str) -> str:
    """The message when a check fails."""
    where = f"in operation {operation.label}\n  at {operation.site.text}"
    return f"{fact}\n  {where}\n  nothing was assigned in this step" + (f"\n  {advice}" if advice else "")


class FeedCheck(Protocol):
    """A check of the arrays that are fed. It runs once, before a step begins, and not on the cores."""

    @property
    def feeds(self) -> tuple[str, ...]:
        """The names of the arrays that it looks at."""
        ...

    def failure(self, arrays: Sequence[np.ndarray]) -> MeshtfError | None:
        """The error to raise if these arrays are wrong; else None."""
        ...

    def assertion(self, arrays: Sequence[tf.Tensor]) -> tf.Operation:
        """The same check while a tf.function is traced: an assertion that fails with InvalidArgumentError."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """A whole program for every core of a mesh.

    Attributes:
      awaited: for some instructions, an earlier one that they wait for, besides those that make their inputs.
      feed_checks: the checks of the program's inputs. All other checks are part of the program.
      process_of_core: the process that each core is in; empty where one process has all cores.
    """

    mesh_shape: Shape
    instructions: tuple[Instruction, ...]
    fetches: tuple[Value, ...]
    checks: tuple[Check, ...]
    uses_random: bool
    awaited: Mapping[Instruction, Compute | Collective] = dataclasses.field(default_factory=dict)
    feed_checks: tuple[FeedCheck, ...] = ()
    process_of_core: ProcessOfCore = ()

    @functools.cached_property
    def feeds(self) -> tuple[Feed, ...]:
        return tuple(i for i in self.instructions if isinstance(i, Feed))

    @property
    def reads(self) -> list[ReadVariable]:
        return [i for i in self.instructions if isinstance(i, ReadVariable)]

    @property
    def assignments(self) -> list[AssignVariable]:
        return [i for i in self.instructions if isinstance(i, AssignVariable)]

    def refused_feed(self, feeds: Mapping[str, Any]) -> MeshtfError | None:
        """The error of the first check that the fed arrays fail, or None. `feeds`: the arrays, keyed by name."""
        for check in self.feed_checks:
            if error := check.failure([host_array(feeds[name]) for name in check.feeds]):
                return error
        return None

    @property
    def collectives(self) -> list[Collective]:
        return [i for i, _ in walk(self.instructions) if isinstance(i, Collective)]

    @functools.cached_property
    def unreduced(self) -> frozenset[Value]:
        """The values that are terms of a maximum or the like. They differ between cores although no sum is pending."""
        reductions = [c for c in self.collectives if c.step.reduction and not {*c.step.axes} <= {*c.input.pending}]
        return frozenset(x.input for c in reductions for x in (c, *c.members))

    def _repr_html_(self) -> str:
        return plan_html(self, nested)

    def without_assignments(self) -> Plan:
        """The same computation without assignments to variables."""
        kept = tuple(i for i in self.instructions if not isinstance(i, AssignVariable))
        return dataclasses.replace(self, instructions=kept)

    @property
    def variable_names(self) -> list[str]:
        return list(dict.fromkeys(i.name for i in [*self.reads, *self.assignments]))


VariableLayouts: TypeAlias = Mapping[str, TensorLayout]
OutputSpec: TypeAlias = tuple[Shape, tf.DType, TensorLayout] | tuple[Shape, tf.DType, TensorLayout, Axes]
"""Named shape, dtype, layout, and the mesh axes over which a sum is pending where outputs differ in them."""
Slices: TypeAlias = Sequence[tf.Tensor]
