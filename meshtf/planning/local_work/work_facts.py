"""What passes may know of local work besides its inputs, its outputs and its FLOPs.

Whoever adds work to a plan declares these facts of it. They are never guessed from a name: names are the user's, and a
slicewise function called `pad` may square. Of work that declares nothing, nothing is assumed: it stays where it is, in
the dtype that it has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

Kernel: TypeAlias = Callable[..., tf.Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixProduct:
    """The sizes of a product of matrices [rows, contracted] and [contracted, columns], so many in a batch.

    A convolution is one, too: its rows are positions, and what it contracts the kernel's places and channels.

    Attributes:
      batch: products side by side, or groups of channels.
      rows: of the first operand and of the result.
      columns: of the second operand and of the result.
      contracted: terms of each sum.
      transposed: elements of operands and of the result that TensorFlow's kernels need in another order in memory. A
        compiler that chooses the order of what it makes (XLA's for TPUs) moves none.
      is_convolution: whether it is one, for which libraries for processors have more to prepare.
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
    """Of work whose kernel takes any number of rows, each by itself: those of several cores at once, one behind the
    other, where these have the other inputs alike.

    Attributes:
      inputs: by input, the dimension of its slice along which rows lie; None of an input that all rows use.
      output: that of the one output; None where it is the sum of what rows give.
      count: of a core's rows. Those of a convolution are positions.
    """

    inputs: tuple[int | None, ...]
    output: int | None
    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkFacts:
    """Facts of local work.

    Attributes:
      kernel: of elementwise work, the function of the slices alone, brought to one shape; kernels that do the same
        compare equal. None of all other work.
      is_view: the one output is the one input's own memory, and takes none itself.
      only_moves: each element of the outputs is an element of the inputs, or zero, whatever their dtype.
      is_cast: the one output is the one input in another dtype.
      is_trivial: it costs so little that cores need not divide it: numbers known before, a slice.
      is_update: works element by element, and what it makes are variables of the next step.
      takes_own_slice: the one output is the core's own slice, in its layout, of the one input, which the core has whole
        along the dimensions that are cut.
      adds_to_part: the one output is the first input, to a part of which the second is added.
      places_part: the one output is the first input, at one position of this dimension, which the second says, and
        zeros elsewhere; all zeros where that is outside.
      draws_random_bits: any device gives the same bits.
      is_reduction: each element of the one output is made of runs of elements of the inputs, as a sum.
      multiplies: each element of the one output is the product of one element of each input, and nothing is summed.
      scatters_elements: single elements of the one output are written at places that inputs say, and no rows of them.
      products: of matrices, one after the other, that it is.
      rows: how several cores' work can be done as one, where it can.
      transcendentals: exponentials, logarithms, sines and the like in it, where its kernel does not say so.
    """

    kernel: Kernel | None = None
    is_view: bool = False
    only_moves: bool = False
    is_cast: bool = False
    is_trivial: bool = False
    is_update: bool = False
    takes_own_slice: bool = False
    adds_to_part: bool = False
    places_part: int | None = None
    draws_random_bits: bool = False
    is_reduction: bool = False
    multiplies: bool = False
    scatters_elements: bool = False
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
