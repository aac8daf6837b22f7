"""Updates of the rows of a table that a step has read, and of no others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from meshtf.dimension import Dimension
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout
from meshtf.ops.indexing.distinct_rows import NOWHERE, DistinctIds, rows_replaced
from meshtf.ops.indexing.embedding_lookup import PADDING
from meshtf.ops.indexing.local_gather import rows_at, shifted
from meshtf.ops.indexing.row_exchange import RowExchange
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class RowRule(Protocol):
    """Makes new rows from old ones, element by element."""

    def __call__(
        self, rows: Sequence[tf.Tensor], grads: tf.Tensor, scalars: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        """New rows of the tables.

        Args:
          rows: the same rows [n, ..] of each table, in the dtype of `grads`.
          grads: [n, ..], the sum of the gradients of each row.
          scalars: numbers of the program, such as a learning rate.
        """
        ...


class RowUpdateOperation(Operation):
    """Tables of one shape after an update of the rows that ids name. Rows that no id names keep their bits.

    Inputs are tables [dim, ..], ids, gradients of the looked-up rows [ids, ..], and scalars. The gradients of one row
    are summed before the rule sees them. They travel to the rows, and no array of a table's size is made.
    """

    takes_padding = True

    def __init__(
        self,
        tables: Sequence[Tensor],
        ids: Tensor,
        grads: Tensor,
        scalars: Sequence[Tensor],
        dim: Dimension,
        rule: RowRule,
        *,
        capacity_factor: float | None = None,
        name: str = "row_update",
    ) -> None:
        super().__init__([*tables, ids, grads, *scalars], [(t.shape, t.dtype) for t in tables], name=name)
        self._tables, self._dim, self._rule, self._capacity_factor = len(tables), dim, rule, capacity_factor

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        n, layouts = self._tables, planner.layouts
        tables, (ids, grads), scalars = self.inputs[:n], self.inputs[n : n + 2], self.inputs[n + 2 :]
        own = layouts[tables[0]]
        held = [planner.read(table, own, fill=None) for table in tables]
        exchange = RowExchange.between(tables[0], ids, self._dim, self._capacity_factor, layouts)
        rest = [(d, axes) for d, axes in zip(tables[0].shape, own.axes, strict=True) if d.name != self._dim.name]
        # Without an exchange every core gets all gradients, and takes those of the rows that it holds.
        if exchange is None:
            rows = self._gathered(planner, ids, grads, rest)
        else:
            rows = self._sent(planner, exchange, rest)
        numbers = [planner.read(s, TensorLayout(())) for s in scalars]
        axes = own.axes[tables[0].shape.axis(self._dim)]
        emit = RowUpdate(self._rule, axes, n)
        specs = [(t.shape, t.dtype, own) for t in tables]
        facts = WorkFacts(rows_touched=math.prod(rows[0].slice_shape))
        flops = 8 * math.prod(rows[1].slice_shape)
        results = planner.compute("row_update", emit, [*held, *rows, *numbers], specs, flops=flops, facts=facts)
        for output, value in zip(self.outputs, results, strict=True):
            planner.write(output, value)

    def _gathered(
        self, planner: Planner, ids: Tensor, grads: Tensor, rest: Sequence[tuple[Dimension, Axes]]
    ) -> list[Value]:
        """All ids and the gradients of all rows, on every core."""
        splits = {d.name: axes for d, axes in rest}
        layout = TensorLayout(tuple(splits.get(d.name, ()) for d in grads.shape))
        whole = planner.read(ids, TensorLayout(((),) * ids.shape.ndims), PADDING)
        return [whole, planner.read(grads, layout)]

    def _sent(self, planner: Planner, exchange: RowExchange, rest: Sequence[tuple[Dimension, Axes]]) -> list[Value]:
        """The ids and gradients of the rows that each core holds."""
        ids, grads = self.inputs[self._tables : self._tables + 2]
        layout = TensorLayout((*exchange.ids.axes, *(axes for _, axes in rest)))
        values = [planner.read(ids, exchange.ids, PADDING), planner.read(grads, layout)]

        def emit(core: Core, ids: tf.Tensor, rows: tf.Tensor) -> list[tf.Tensor]:
            distinct, requests = exchange.requests(ids)
            sums = distinct.sums(tf.reshape(rows, [-1, *rows.shape[ids.shape.rank :]]))
            blocks = exchange.blocks
            return [requests.placed(distinct.ids, NOWHERE, blocks), requests.placed(sums, 0, blocks)]

        specs = [exchange.spec(ids.dtype, (), is_sent=False), exchange.spec(grads.dtype, rest, is_sent=False)]
        blocks = planner.compute("rows to send", emit, values, specs, flops=math.prod(values[1].slice_shape))
        sent = [exchange.send(planner, value) for value in blocks]
        return [planner.all_gather(value, 0) if exchange.groups else value for value in sent]


@dataclasses.dataclass(frozen=True, eq=False)
class RowUpdate:
    """The local work of an update: new tables, from tables, ids, gradients, scalars and guards.

    Attributes:
      rule: makes new rows.
      axes: the mesh axes over which the tables' rows are split.
      tables: how many tables there are.
      guards: how many booleans follow the scalars. Unless all are true, rows keep their values.
    """

    rule: RowRule
    axes: Axes
    tables: int
    guards: int = 0

    def __call__(self, core: Core, *slices: tf.Tensor) -> list[tf.Tensor]:
        tables, (ids, grads) = slices[: self.tables], slices[self.tables : self.tables + 2]
        end = len(slices) - self.guards
        scalars, guards = slices[self.tables + 2 : end], slices[end:]
        count, *rest = tables[0].shape.as_list()
        if not ids.shape.num_elements() or not math.prod([count, *rest]):
            return list(tables)
        distinct = DistinctIds.of(tf.reshape(shifted(core, ids, self.axes, count), [-1]), count)
        sums = distinct.sums(tf.reshape(grads, [-1, *rest]))
        old = [rows_at(table, distinct.ids, 0) for table in tables]
        new = self.rule([tf.cast(rows, sums.dtype) for rows in old], sums, scalars)
        rows = [tf.cast(x, table.dtype) for x, table in zip(new, tables, strict=True)]
        if guards:
            is_kept = tf.reduce_all(tf.stack(guards))
            rows = [tf.where(is_kept, x, before) for x, before in zip(rows, old, strict=True)]
        return [rows_replaced(table, distinct.ids, x) for table, x in zip(tables, rows, strict=True)]
