"""The exchange of rows between the cores that hold a table and the cores that ask for its rows.

Let a table's rows and a batch of ids be split over the same mesh axis. Each core sorts its distinct ids into blocks,
one for each core that holds rows, with a fixed capacity. An alltoall sends the blocks there. Another alltoall sends the
rows back, or sends gradients to the rows:

    ids on core 0: 7 0 7 1    blocks for cores 0 and 1, of capacity 3, with 4 rows each: [0 1 -] [7 - -]

A block that is too small stops the step with an error that says so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Dimension, Shape, unused_name
from meshtf.errors import RowCapacityError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.ops.indexing.distinct_rows import NOWHERE, DistinctIds, Requests
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.open_check import OpenCheck, failed_if, failure_spec
from meshtf.planning.plan import Core, OutputSpec, Value
from meshtf.planning.planner import Planner

_SENDERS, _OWNERS = 1, 2
_ADVICE = "give a larger capacity_factor, or None: then no ids are exchanged, and any batch fits"


@dataclasses.dataclass(frozen=True)
class RowExchange:
    """Blocks [groups, senders, owners, slots] of ids. Blocks of rows have more dimensions at the end.

    Attributes:
      dim: the table's dimension that the ids point into.
      owners: the mesh axes over which the table's rows are split. The ids are split over them too.
      groups: the other mesh axes over which the ids are split.
      ids: the layout of the ids.
      capacity: how many distinct ids a core may send to another.
      mesh_shape: the shape of the mesh.
    """

    dim: Dimension
    owners: Axes
    groups: Axes
    ids: TensorLayout
    capacity: int
    mesh_shape: Shape

    @classmethod
    def between(
        cls, table: Tensor, ids: Tensor, dim: Dimension, capacity_factor: float | None, layouts: LayoutTable
    ) -> RowExchange | None:
        """The exchange for a table and ids in their own layouts.

        None if there is no factor, or if the ids are not split over the mesh axes of the rows.
        """
        axes, own, mesh_shape = layouts[table].axes, layouts[ids], layouts.mesh_shape
        owners = axes[table.shape.axis(dim)]
        others = {a for n, of_dim in enumerate(axes) if n != table.shape.axis(dim) for a in of_dim}
        count = math.prod(own.slice_shape(ids.shape, mesh_shape))
        if capacity_factor is None or not owners or not {*owners} <= own.used or others & own.used:
            return None
        if not count or not dim.size:
            return None
        groups = tuple(d.name for d in mesh_shape if d.name in own.used and d.name not in owners)
        capacity = min(count, math.ceil(capacity_factor * count / axes_size(owners, mesh_shape)))
        return cls(dim, owners, groups, own, capacity, mesh_shape)

    @property
    def num_owners(self) -> int:
        return axes_size(self.owners, self.mesh_shape)

    @property
    def rows_of_owner(self) -> int:
        return -(-self.dim.size // self.num_owners)

    def spec(self, dtype: tf.DType, rest: Sequence[tuple[Dimension, Axes]], *, is_sent: bool) -> OutputSpec:
        """The blocks as they lie on the cores that hold rows (`is_sent`), or on the cores that ask for them."""
        n, around = self.num_owners, Shape([d for d, _ in rest])
        sizes = (axes_size(self.groups, self.mesh_shape), n, n, self.capacity)
        names = [unused_name(name, around) for name in ("groups", "senders", "owners", "slots")]
        shape = Shape([*zip(names, sizes, strict=True), *(d for d, _ in rest)])
        split = ((), self.owners) if is_sent else (self.owners, ())
        return shape, dtype, TensorLayout((self.groups, *split, (), *(axes for _, axes in rest)))

    def requests(self, ids: tf.Tensor) -> tuple[DistinctIds, Requests]:
        """The distinct ids of a core's slice, and their places in its blocks."""
        distinct = DistinctIds.of(tf.reshape(ids, [-1]), self.dim.size)
        return distinct, Requests.of(distinct, self.num_owners, self.rows_of_owner, self.capacity)

    @property
    def blocks(self) -> list[int]:
        """The size of a core's blocks, before they are sent."""
        return [1, 1, self.num_owners, self.capacity]

    def send(self, planner: Planner, value: Value) -> Value:
        """Blocks on the cores that hold rows, from blocks on the cores that ask."""
        axes = value.layout.axes
        layout = TensorLayout((axes[0], (), self.owners, *axes[3:]))
        return planner.collective(AllToAll(self.owners, _OWNERS, _SENDERS), value, layout)

    def send_back(self, planner: Planner, value: Value) -> Value:
        """Blocks on the cores that ask, from blocks on the cores that hold rows."""
        axes = value.layout.axes
        layout = TensorLayout((axes[0], self.owners, (), *axes[3:]))
        return planner.collective(AllToAll(self.owners, _SENDERS, _OWNERS), value, layout)

    def ask(self, planner: Planner, operation: Operation, ids: Value) -> tuple[Value, Value]:
        """The blocks of ids on the cores that hold rows, and int32 [ids]: the place of each id in its core's blocks.

        A step in which a block is too small assigns nothing and raises RowCapacityError.
        """

        def emit(core: Core, x: tf.Tensor) -> list[tf.Tensor]:
            distinct, requests = self.requests(x)
            blocks = requests.placed(distinct.ids, NOWHERE, self.blocks)
            places = tf.gather(requests.targets, distinct.places)
            return [blocks, tf.reshape(places, x.shape), failed_if(requests.overflows)]

        used = tuple(d.name for d in self.mesh_shape if d.name in self.ids.used)
        specs = [self.spec(ids.dtype, (), is_sent=False), (ids.shape, tf.int32, self.ids), failure_spec(used)]
        blocks, places, failures = planner.compute("requests", emit, [ids], specs, flops=math.prod(ids.slice_shape))
        planner.checks.add(OpenCheck(operation, self._fact, failures, RowCapacityError, advice=_ADVICE))
        return self.send(planner, blocks), places

    @property
    def _fact(self) -> str:
        return (
            f'a core asks another for more than {self.capacity} different rows of "{self.dim}", the most that '
            f"capacity_factor leaves room for"
        )
