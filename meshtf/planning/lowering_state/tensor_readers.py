"""The operations that read the tensors of a program or a block, and the layouts in which they read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan_record import PlanRecord


class TensorReaders:
    """The readers of tensors.

    Args:
      layouts: the layouts of all tensors.
      pending_sums: the pending sums of the program or the block.
      record: the record of the program or the block, which stores the operation that is being lowered.
      outside: the readers of the enclosing block or program; None for the program itself.
      leaving: for tensors that leave the block, the tensors of the same shape that they become outside.
    """

    def __init__(
        self,
        layouts: LayoutTable,
        pending_sums: PendingSums,
        record: PlanRecord,
        outside: TensorReaders | None = None,
        leaving: Mapping[Tensor, Tensor] | None = None,
    ) -> None:
        self._table = layouts
        self._pending_sums = pending_sums
        self._record = record
        self._outside = outside
        self._leaving = leaving or {}

    def consumers(self, tensor: Tensor) -> Sequence[Operation]:
        """The operations that read the tensor: none, where it is only fetched."""
        return self._pending_sums.consumers(tensor)

    def is_used(self, tensor: Tensor) -> bool:
        """Whether anything reads or fetches the tensor, or the block returns it.

        If not, the tensor need not be written.
        """
        return self._pending_sums.is_used(tensor)

    def layout_wanted(self, tensor: Tensor) -> TensorLayout | None:
        """The layout in which all users of the tensor work; None if there are several layouts, or one is unknown.

        If an operation takes a tensor as it is held, as an override does, the search continues with the readers of its
        output. If the tensor leaves the block, the search continues outside.
        """
        wanted = {*self._layouts_wanted(tensor)}
        return wanted.pop() if len(wanted) == 1 else None

    def _layouts_wanted(self, tensor: Tensor) -> Iterator[TensorLayout | None]:
        readers, layouts = self.consumers(tensor), self._table.seen_by(self._record.operation)
        for reader in readers:
            made = next((y for y in reader.outputs if y.shape == tensor.shape), None)
            if made is not None and reader.takes_any_layout:
                yield from self._layouts_wanted(made)
            else:
                yield None if made is None else layouts[made]
        if tensor in self._leaving:
            assert self._outside is not None
            yield from self._outside._layouts_wanted(self._leaving[tensor])
        elif not readers:
            yield layouts[tensor]
