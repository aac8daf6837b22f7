"""The facts about local work that passes may use, besides its inputs, its outputs and its FLOPs.

Whoever adds work to a plan declares these facts. They are never guessed from a name: names are the user's, and a
slicewise function called `pad` may square. Passes assume nothing about work that declares nothing, and change neither
its place nor its dtype.
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

    A convolution counts as one too. Its rows are positions. It contracts the kernel's positions and input channels.

    Attributes:
      batch: the number of products in the batch, or of groups of channels.
      rows: the rows of the first operand and of the result.
      columns: the columns of the second operand and of the result.
      contracted: the terms of each sum.
      transposed: the number of elements of operands and of the result that TensorFlow's kernels must first bring into
        another memory order. A compiler that chooses the memory order itself (XLA's for TPUs) moves none.
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

    One call of such a kernel can take the concatenated rows of several cores, if the cores have equal other inputs.

    Attributes:
      inputs: for each input, the dimension of its slice that holds the rows; None for an input that all rows use.
      output: the dimension of the one output that holds the rows; None if the output is a sum over rows.
      count: the number of rows of a core. The rows of a convolution are positions.
    """

    inputs: tuple[int | None, ...]
    output: int | None
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkFacts:
    """Facts about local work.

    Attributes:
      kernel: for elementwise work, the function of the slices alone, all broadcast to one shape; else None. Kernels
        that compute the same compare equal.
      is_view: the one output shares the memory of the one input.
      waits: the output is a view of the first input. No compiler may compute with it before the other inputs exist.
      only_moves: each element of the outputs is an element of the inputs, or zero, whatever their dtype.
      is_cast: the one output is the one input in another dtype.
      is_trivial: it costs so little that cores need not divide it, as with constants or a slice.
      is_update: works element by element, and makes variables of the next step.
      takes_own_slice: the one output is the core's own slice of the one input. The core has that input whole along the
        dimensions that are cut.
      adds_to_part: the one output is the first input with the second input added to a part of it.
      places_part: the dimension at one position of which the one output holds the first input. The second input is the
        position. The rest is zeros, and so is all of it if the position is out of range.
      expands: each element of the one output depends on one element of the one input and on its own position, as in a
        one-hot vector.
      draws_random_bits: it draws random bits, which are the same on every device.
      is_reduction: each element of the one output depends on runs of elements of the inputs, as a sum does.
      multiplies: each element of the one output is the product of one element of each input, and nothing is summed.
      scatters_elements: it writes single elements, not rows, of the one output, at places that inputs determine.
      rows_touched: the number of rows that it reads or writes of a larger first dimension; 0 if it uses all rows.
      products: the matrix products that it consists of, in order.
      rows: the rows by which one call can do the work of several cores; None if it cannot.
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
        """Whether each element of the outputs is an element of the inputs, or zero."""
        return self.is_view or self.only_moves or self.kernel is tf.identity

    @property
    def is_elementwise_or_moves(self) -> bool:
        """Whether each output element is computed from the input elements at its own place, or only moved, as in a
        weight's update."""
        return self.kernel is not None or self.is_view or self.only_moves or self.is_cast or self.is_update


NOTHING_KNOWN = WorkFacts()
