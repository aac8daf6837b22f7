"""The scopes in which the layers of a stack are made.

Each unrolled layer has its own scope; a scan has one scope for all layers. In both cases, files use the names of the
unrolled layers, and random bits are the same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.dimension import Dimension, Shape

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class BatchCut:
    """The division of a batch into micro-batches, each with every `count`-th example.

    Attributes:
      names: the names of the batch dimension, and of dimensions that a layer makes from it. Along these, each example
        has the same number of adjacent positions.
      size: the number of examples of a micro-batch.
      count: the number of micro-batches.
    """

    names: tuple[str, ...]
    size: int
    count: int

    def neighbours(self, dim: Dimension) -> int:
        """The number of positions of one example along a dimension of a micro-batch."""
        return max(1, dim.size // self.size) if dim.size % self.size == 0 else 1


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Vectorization:
    """Several layers that are computed at once, each on its own micro-batch: see `mtf.VectorizedLayers`.

    Attributes:
      along: the dimension along which tensors belong to different layers.
      numbers: int32 [along]: the number of each layer.
      cut: the division of the batch into micro-batches; None if it is whole.
      microbatches: int32 [along]: the number of the micro-batch that each layer works on.
    """

    along: Dimension
    numbers: Tensor
    cut: BatchCut | None = None
    microbatches: Tensor | None = None

    @property
    def inputs(self) -> list[Tensor]:
        return [self.numbers] if self.microbatches is None else [self.numbers, self.microbatches]


@dataclasses.dataclass(frozen=True, slots=True)
class LayerScope:
    """A scope in which a stack's layers are made.

    Attributes:
      label: its path without the layer's number: `decoder/layer`.
      dim: the dimension that counts the layers.
      number: the layer's number, if layers are unrolled; None if this is the one scope of all layers, in a scan.
      stacked: the dimensions that stacked variables have instead of `dim`. The product of their sizes is that of `dim`.
      vectorization: the layers that are being computed at once, in row-major order of `stacked`.
    """

    label: str
    dim: Dimension
    number: int | None = None
    stacked: tuple[Dimension, ...] = ()
    vectorization: Vectorization | None = None

    @property
    def stacked_dims(self) -> tuple[Dimension, ...]:
        return self.stacked or (self.dim,)

    @property
    def path(self) -> str:
        return self.label if self.number is None else self.path_of(self.number)

    @property
    def is_stacked(self) -> bool:
        return self.number is None

    def path_of(self, number: int) -> str:
        """The path of one layer's scope: `decoder/layer_003`."""
        return f"{self.label}_{number:03d}"

    def has(self, name: str) -> bool:
        """Whether this name lies in the scope."""
        return name.startswith(f"{self.path}/")


@dataclasses.dataclass(frozen=True, slots=True)
class ScopedName:
    """The name of an operation, and the layer scopes that were open there. Layout rules of places match both.

    The operations of a gradient have the place of the operation that is differentiated.
    """

    name: str
    layer_scopes: tuple[LayerScope, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The operation's name in each layer that it computes, as if the layers were unrolled."""
        return layer_names(self.name, scopes_of(self.name, self.layer_scopes))

    @property
    def pattern(self) -> str:
        """The name with `*` in place of layer numbers, if it stands for several: `decoder/layer_*/query/einsum`."""
        name = self.name
        for scope in reversed(scopes_of(name, self.layer_scopes)):
            if scope.is_stacked:
                name = f"{scope.path}_*{name.removeprefix(scope.path)}"
        return name


def scopes_of(name: str, open_scopes: Sequence[LayerScope]) -> tuple[LayerScope, ...]:
    """The open scopes, outermost first, whose path begins the name. A name given at the root is in none."""
    return tuple(scope for scope in open_scopes if scope.has(name))


def stacked_dims(scopes: Sequence[LayerScope]) -> Shape:
    """The dimensions that count layers in tensors of these scopes; none for scopes that are not stacked."""
    return Shape([dim for scope in scopes if scope.is_stacked for dim in scope.stacked_dims])


def vectorization_of(scopes: Sequence[LayerScope]) -> Vectorization | None:
    """The layers that are computed at once in these scopes, or None. At most one of nested scopes has them."""
    return next((scope.vectorization for scope in scopes if scope.vectorization is not None), None)


def without_numbers(name: str, scopes: Sequence[LayerScope]) -> str:
    """The name without layer numbers. Random bits depend on it and on the layers' numbers."""
    for scope in reversed(scopes):
        name = scope.label + name.removeprefix(scope.path)
    return name


def layer_names(name: str, scopes: Sequence[LayerScope]) -> tuple[str, ...]:
    """The name of each layer's part of a stacked variable, as if the layers were unrolled.

    The order is row-major over the stacked dimensions. If nothing is stacked, this is the name itself.
    """
    stacked = [scope for scope in scopes if scope.is_stacked]
    names = []
    for numbers in itertools.product(*(range(scope.dim.size) for scope in stacked)):
        own = name
        for scope, number in zip(reversed(stacked), reversed(numbers), strict=True):
            own = scope.path_of(number) + own.removeprefix(scope.path)
        names.append(own)
    return tuple(names)
