"""Lookups in tables that exceed a core's memory: by an exchange of ids and rows, where the layout allows it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.indexing.distinct_rows import NOWHERE
from meshtf.ops.indexing.gather import check_indices, gather_on_cores, scatter_add
from meshtf.ops.indexing.local_gather import rows_at, shifted
from meshtf.ops.indexing.row_exchange import RowExchange
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import cheapest_splits

PADDING = Fill(NOWHERE)
"""The id that fills the padding of a batch."""


class EmbeddingLookupOperation(Operation):
    """Rows [ids, rest] of a table [dim, rest] by ids, which have no dimension of the table.

    If rows and ids are split over the same mesh axes, distinct ids travel to the cores that hold their rows, and the
    rows come back. Under other layouts it is a gather.
    """

    takes_padding = True
    mapped = "second input"

    def __init__(
        self,
        table: Tensor,
        ids: Tensor,
        dim: Dimension,
        capacity_factor: float | None,
        name: str = "embedding_lookup",
    ) -> None:
        rest = [d for d in table.shape if d.name != dim.name]
        super().__init__([table, ids], [(Shape([*ids.shape, *rest]), table.dtype)], name=name)
        self.dim, self.capacity_factor = dim, capacity_factor

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (table, ids), (dy,) = self.inputs, grad_ys
        assert dy is not None
        return [scatter_add(dy, ids, self.dim, table.shape), None]

    def exchange(self, layouts: LayoutTable) -> RowExchange | None:
        """The exchange by which rows travel, or None for a gather."""
        table, ids = self.inputs
        return RowExchange.between(table, ids, self.dim, self.capacity_factor, layouts)

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        if self.exchange(layouts) is not None:
            return ()
        return cheapest_splits(self.inputs, self.outputs[0], layouts)[self.dim.name]

    def lower(self, planner: Planner) -> None:
        exchange = self.exchange(planner.layouts)
        if exchange is None:
            count = math.prod(planner.layouts[self.inputs[1]].slice_shape(self.inputs[1].shape, planner.mesh_shape))
            return gather_on_cores(planner, self, self.dim, WorkFacts(rows_touched=max(count, 1)))
        return self._exchanged(planner, exchange)

    def _exchanged(self, planner: Planner, exchange: RowExchange) -> None:
        (table, ids), (output,) = self.inputs, self.outputs
        held, asked = planner.read(table, fill=None), planner.read(ids, exchange.ids, PADDING)
        wanted, places = exchange.ask(planner, self, asked)
        found = exchange.send_back(planner, self._rows(planner, exchange, held, wanted))
        rest = found.slice_shape[4:]

        def emit(core: Core, blocks: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
            return rows_at(tf.reshape(blocks, [-1, *rest]), places, 0)

        layout = planner.layouts[output]
        own = type(layout)((*exchange.ids.axes, *found.layout.axes[4:]))
        facts = WorkFacts(only_moves=True)
        (rows,) = planner.compute(
            "rows asked for", emit, [found, places], [(output.shape, output.dtype, own)], facts=facts
        )
        planner.write(output, rows)

    def _rows(self, planner: Planner, exchange: RowExchange, table: Value, wanted: Value) -> Value:
        """The rows that other cores request, in blocks like those of the ids."""
        axis = table.shape.axis(self.dim)
        rest = [(d, table.layout.axes[n]) for n, d in enumerate(table.shape) if n != axis]
        in_order = aligner(table.shape, Shape([self.dim, *(d for d, _ in rest)]))
        owners, count = exchange.owners, exchange.rows_of_owner

        def emit(core: Core, rows: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
            return rows_at(in_order(rows), shifted(core, ids, owners, count), 0)

        facts = WorkFacts(rows_touched=math.prod(wanted.slice_shape))
        spec = exchange.spec(table.dtype, rest, is_sent=True)
        return planner.compute("rows of owners", emit, [table, wanted], [spec], facts=facts)[0]


@language_function
def embedding_lookup(
    table: Tensor,
    ids: Tensor,
    dim: DimensionLike,
    capacity_factor: float | None = 2.0,
    name: str | None = None,
) -> Tensor:
    """Rows of a table that may be larger than a core; zeros for an id that is negative or not below its size.

    The result is that of `gather`. If `dim` and the ids are split over the same mesh axis, each core sends its distinct
    ids to the cores that hold their rows, and these send the rows back. The bytes of these two alltoalls do not depend
    on the size of the table. If the table is split over another axis, each core finds its own rows, and an allreduce
    follows.

    Args:
      table: [dim, ...], rows of any dtype.
      ids: int32 or int64, with no dimension of the table.
      dim: a dimension of the table.
      capacity_factor: the room for the ids that a core sends to each other core, in proportion to an even share. A step
        that needs more assigns nothing and raises RowCapacityError. With None, the lookup is a gather, and any batch
        fits.
      name: the operation's name.

    Raises:
      ShapeError: the table lacks the dimension, or shares one with the ids, or the factor is not positive.
      DtypeError: the ids are not int32 or int64.

    Examples:
      >>> table, ids = mtf.ones(mesh, "rows:100 d_model:8"), mtf.zeros(mesh, "batch:4 bag:3", tf.int32)
      >>> mtf.embedding_lookup(table, ids, "rows")
      embedding_lookup [batch:4 bag:3 d_model:8] float32
      >>> tens = 10 * mtf.range(mesh, ("n", 3))
      >>> value(mtf.embedding_lookup(tens, mtf.constant(mesh, [2, 9], "i:2", tf.int32), "n"))
      array([20,  0], dtype=int32)
    """
    own = reduced_dimension(check_tensor(table), dim)
    check_indices(check_tensor(ids, "index"), own)
    shared = [d.name for d in ids.shape if table.shape.has(d)]
    if shared:
        raise ShapeError(
            f'ids [{ids.shape}] and table [{table.shape}] share "{shared[0]}", and a lookup of whole rows has no such '
            f"dimension; use mtf.gather"
        )
    if capacity_factor is not None:
        if isinstance(capacity_factor, bool) or not isinstance(capacity_factor, int | float):
            raise DtypeError(f"capacity_factor must be a number or None, and is {capacity_factor!r}")
        if not 0 < capacity_factor < math.inf:
            raise ShapeError(f"capacity_factor must be positive, and is {capacity_factor!r}")
    return EmbeddingLookupOperation(table, ids, own, capacity_factor, name or "embedding_lookup").outputs[0]
