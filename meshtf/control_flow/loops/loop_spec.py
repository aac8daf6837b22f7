"""The parts of a loop: its iterations, its block of operations, and the tensors that go into and out of it."""

from __future__ import annotations

import dataclasses
import enum

import tensorflow as tf

from meshtf.control_flow.recompute_policy import KEEP_EVERYTHING, RecomputePolicy
from meshtf.dimension import Dimension, Shape
from meshtf.errors import DtypeError
from meshtf.graph.blocks import Block
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.pipeline_note import PipelineNote


@dataclasses.dataclass(frozen=True, eq=False)
class Iterations:
    """The number of times a loop repeats its block, and their order.

    dim: the dimension of the iterations. Its size is their number, or the most that are possible.
    is_reversed: whether the order is from the last element of `dim` to the first.
    count: an int32 scalar with the number of iterations, if it is computed before the loop and differs from `dim`.
    condition: a block from the carried values to a bool scalar. The loop ends when it is false.
    """

    dim: Dimension
    is_reversed: bool = False
    count: Tensor | None = None
    condition: Block | None = None


class Counted(enum.Enum):
    """The thing that a loop counts. The number of an iteration determines its random bits."""

    ITERATIONS = "iterations"
    """Each iteration has different bits."""
    LAYERS = "layers"
    """Each iteration has the bits that its layer of a stack would have if the stack were unrolled."""
    NOTHING = "nothing"
    """All iterations have the same bits."""


@dataclasses.dataclass(frozen=True)
class Numbering:
    """The meaning of the numbers of a loop's iterations.

    counted: iterations, layers or nothing; or micro-batches, in which random bits are those of the whole batch.
    is_segment: whether the count continues in the next iteration of the enclosing loop, as in one long loop.
    """

    counted: Counted | MicrobatchCut = Counted.ITERATIONS
    is_segment: bool = False


EACH_BY_ITSELF = Numbering()
"""Numbers each iteration separately, so that each has different random bits."""


@dataclasses.dataclass(frozen=True, eq=False)
class CarriedTensor:
    """A value passed on from iteration to iteration.

    `initial` enters the first iteration. Each iteration turns `entering` into `leaving`.
    """

    initial: Tensor
    entering: Tensor
    leaving: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class SlicedTensor:
    """A tensor that gives each iteration its part, without the dimension that counts the iterations."""

    whole: Tensor
    part: Tensor

    @property
    def axis(self) -> int:
        """The position of the whole's dimension that the part lacks."""
        (axis,) = (i for i, d in enumerate(self.whole.shape) if not self.part.shape.has(d.name))
        return axis

    @property
    def dim(self) -> Dimension:
        return self.whole.shape[self.axis]


@dataclasses.dataclass(frozen=True, eq=False)
class StackedTensor:
    """A tensor of the block that the loop returns for all iterations, stacked over [dim, ...].

    gradient_of: the sliced tensor whose gradient this is; None if it is no gradient.
    """

    part: Tensor
    dim: Dimension
    gradient_of: Tensor | None = None

    @property
    def shape(self) -> Shape:
        return Shape([self.dim, *self.part.shape])


@dataclasses.dataclass(frozen=True, eq=False)
class AccumulatedTensor:
    """A tensor of the block whose sum over the iterations the loop returns.

    The sum is computed in float32 at least. Sums over cores may stay pending inside the loop.

    dtype: the dtype of the returned sum.
    gradient_of: the value of the variable whose gradient this is, if it is a gradient of a training step.

    Raises:
      DtypeError: the term is bool.
    """

    term: Tensor
    dtype: tf.DType
    gradient_of: Tensor | None = None

    def __post_init__(self) -> None:
        if self.term.dtype == tf.bool:
            raise DtypeError(f"{self.term} would be summed over the iterations, and is bool; convert it with mtf.cast")


@dataclasses.dataclass(frozen=True, eq=False)
class LoopSpec:
    """The description of a loop: everything that it repeats, reads and returns.

    policy: which tensors of each iteration its gradient keeps.
    pipeline: facts about its iterations, if they are the steps of a pipeline.
    asks_to_be_compiled: whether XLA should compile it as one function, if that is possible and pays.
    may_overrun: whether iterations after the last one change no result.
    computes_again: whether it is a gradient that recomputes tensors that the forward loop did not keep.
    """

    iterations: Iterations
    operations: tuple[Operation, ...]
    carried: tuple[CarriedTensor, ...] = ()
    sliced: tuple[SlicedTensor, ...] = ()
    stacked: tuple[StackedTensor, ...] = ()
    accumulated: tuple[AccumulatedTensor, ...] = ()
    numbering: Numbering = EACH_BY_ITSELF
    policy: RecomputePolicy = KEEP_EVERYTHING
    pipeline: PipelineNote | None = None
    asks_to_be_compiled: bool = False
    may_overrun: bool = False
    computes_again: bool = False

    @property
    def dim(self) -> Dimension:
        return self.iterations.dim

    @property
    def stacked_parts(self) -> tuple[Tensor, ...]:
        return tuple(s.part for s in self.stacked)

    @property
    def terms(self) -> tuple[Tensor, ...]:
        """The tensors of the block that are accumulated."""
        return tuple(a.term for a in self.accumulated)

    @property
    def body(self) -> Block:
        bound = (*(c.entering for c in self.carried), *(s.part for s in self.sliced))
        outputs = (*(c.leaving for c in self.carried), *self.stacked_parts, *self.terms)
        return Block(self.operations, bound, outputs)

    @property
    def blocks(self) -> tuple[Block, ...]:
        condition = self.iterations.condition
        return (self.body,) if condition is None else (condition, self.body)
