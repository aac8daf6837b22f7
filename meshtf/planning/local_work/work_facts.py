"""The facts about local work that passes may use, besides its inputs, its outputs and its FLOPs.

Whoever adds work to a plan declares these facts. They are never guessed from a name: names are the user's, and a
slicewise function called `pad` may square. Passes assume nothing about work that declares nothing. It stays where it
is, in the dtype that it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

Kernel: TypeAlias = Callable[..., tf.Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixProduct:
    """The sizes of a batch of products of matrices [rows, contracted] and [contracted, columns].

    A convolution counts as one too. Its rows are positions. It contracts the kernel's places and channels.

    Attributes:
      batch: the number of products side by side, or of groups of channels.
      rows: the rows of the first operand and of the result.
      columns: the columns of the second operand and of the result.
      contracted: the terms of each sum.
      transposed: elements of operands and of the result that TensorFlow's kernels need in another order in memory. A
        compiler that chooses the order of what it makes (XLA's for TPUs) moves none.
      is_convolution: whether this is a convolution, for which libraries for processors have more to prepare.
    """

    batch: int
    rows: int
    columns: int
    contracted: int
    transposed: int = 0
    is_convolution: bool = False

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each place of each sum."""
        return 2 * self.batch * self.rows * self.columns * self.contracted


@dataclasses.dataclass(frozen=True, slots=True)
class BatchedRows:
    """The rows of work whose kernel takes any number of rows, and treats each by itself.

    The rows of several cores can go through such a kernel in one call, one core's behind the other's, where the cores
    have the other inputs alike.

    Attributes:
      inputs: for each input, the dimension of its slice along which rows lie; None for an input that all rows use.
      output: the same dimension of the one output; None where the output is a sum over rows.
      count: the number of a core's rows. The rows of a convolution are positions.
    """

    inputs: tuple[int | None, ...]
    output: int | None
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkFacts:
    """Facts of local work.

    Attributes:
      kernel: the function of the slices alone, brought to one shape, for elementwise work; else None. Kernels that do
        the same compare equal.
      is_view: the one output is the one input's own memory, and takes none itself.
      waits: a view of the first input, from which no compiler may compute before the other inputs are there.
      only_moves: each element of the outputs is an element of the inputs, or zero, whatever their dtype.
      is_cast: the one output is the one input in another dtype.
      is_trivial: it costs so little that cores need not divide it: numbers known before, a slice.
      is_update: works element by element, and makes variables of the next step.
      takes_own_slice: the one output is the core's own slice of the one input. The core has that input whole along the
        dimensions that are cut.
      adds_to_part: the one output is the first input, to a part of which the second is added.
      places_part: the one output is the first input, at one position of this dimension, which the second says, and
        zeros elsewhere; all zeros where that is outside.
      expands: each element of the one output is made of one element of the one input and of its own position, as in a
        one-hot vector.
      draws_random_bits: any device gives the same bits.
      is_reduction: each element of the one output is made of runs of elements of the inputs, as a sum.
      multiplies: each element of the one output is the product of one element of each input, and nothing is summed.
      scatters_elements: single elements of the one output are written at places that inputs say, and no rows of them.
      rows_touched: where it is not 0, the number of rows that it reads or writes of a larger first dimension.
      products: the products of matrices that it consists of, one after the other.
      rows: how several cores' work can be done as one, where it can.
      transcendentals: exponentials, logarithms, sines and the like in it, where its kernel does not say so.
    """

    kernel: Kernel | None = None
    is_view: bool = False
    waits: bool = False
    only_moves: bool = False
    is_cast: bool = False
    is_trivial: bool = False
    is_update: bool = False
    takes_own_slice: bool = False
    adds_to_part: bool = False
    places_part: int | None = None
    expands: bool = False
    draws_random_bits: bool = False
    is_reduction: bool = False
    multiplies: bool = False
    scatters_elements: bool = False
    rows_touched: int = 0
    products: tuple[MatrixProduct, ...] = ()
    rows: BatchedRows | None = None
    transcendentals: int = 0

    @property
    def keeps_elements(self) -> bool:
        """Whether the elements that it gives are those that it was given, or zeros."""
        return self.is_view or self.only_moves or self.kernel is tf.identity

    @property
    def is_elementwise_or_moves(self) -> bool:
        """Whether elements are made of those in the same places, or moved to others: as in a weight's update."""
        return self.kernel is not None or self.is_view or self.only_moves or self.is_cast or self.is_update


NOTHING_KNOWN = WorkFacts()
