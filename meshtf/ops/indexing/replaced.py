"""The base of operations that replace parts of a tensor at indices along a dimension: operands and gradient."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from meshtf.dimension import Dimension
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.indexing.gather import gather
from meshtf.ops.inputs.constants import zeros_like
from meshtf.planning.planner import Planner


class ReplacedOperation(Operation):
    """x with updates in their places along a dimension. An index outside replaces nothing."""

    takes_padding = True
    is_cheap = True
    mapped = "all inputs"

    def __init__(self, x: Tensor, indices: Tensor, updates: Tensor, dim: Dimension) -> None:
        super().__init__([x, indices, updates], [(x.shape, x.dtype)], name=self.called)
        self._dim = dim

    @property
    @abc.abstractmethod
    def called(self) -> str:
        """The name of the operation."""

    @abc.abstractmethod
    def lower(self, planner: Planner) -> None:
        """Replaces the parts in the slices of each core."""

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (_, indices, updates), (dy,) = self.inputs, grad_ys
        assert dy is not None
        kept = type(self)(dy, indices, zeros_like(updates), self._dim).outputs[0]
        return [kept, None, transpose(gather(dy, indices, self._dim), updates.shape)]
