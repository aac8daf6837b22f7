"""Several tables of embeddings in one variable, whose rows may be split over the cores of a mesh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError, counted
from meshtf.field_checks import check_above_zero, check_kinds
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers.initializers import Initializer

POOLINGS = ("sum", "mean")

_ADVICE = """\
the tables along "{dim}" have these numbers of ids, in order: {sizes}. Ids begin at 0, and a negative id is ignored; \
with check_ids=False nothing is checked, and an id beyond the last is ignored too"""


@dataclasses.dataclass(frozen=True)
class EmbeddingTables:
    """Tables of embeddings of one width, in one variable [rows, embedding]. One exchange serves all of them.

    A layout rule for `rows` splits the tables. If it names the mesh axis of the batch, ids and rows travel by alltoall,
    as in `mtf.embedding_lookup`. Consecutive ids of a table lie in different stripes of the variable, so that each core
    has about the same number of a table's rows.

    Update the variable with `mtf.optimize.SparseAdagradOptimizer` or another sparse optimizer, which changes only the
    rows that were looked up.

    Attributes:
      sizes: the number of ids of each table.
      embedding: the dimension of a vector, with its size.
      capacity_factor: the room for ids in an exchange, as in `mtf.embedding_lookup`.
      num_stripes: the number of stripes, at most one for each row. With a multiple of the number of cores, each core
        has whole stripes.
      pooling: "sum" or "mean": how the vectors of a bag of ids are combined.
      initializer: gives the first values. By default they are normal, so that a vector has an expected square of 1.
      check_ids: whether a step with an id above its table's last raises IndexRangeError.
      name: the variable's name.

    Raises:
      GraphError: there is no table, a size or the number of stripes is not positive, or the pooling has another name.

    Examples:
      >>> tables = mtf.layers.EmbeddingTables((1000, 30), mtf.Dimension("embedding", 8))
      >>> ids = mtf.zeros(mesh, "batch:4 tables:2 bag:3", tf.int32)
      >>> tables.pooled(ids, "tables", "bag").shape, mesh.graph.variables["embedding_tables"].shape
      (Shape[batch:4 tables:2 embedding:8], Shape[rows:1280 embedding:8])
    """

    sizes: Sequence[int]
    embedding: DimensionLike
    capacity_factor: float | None = 2.0
    num_stripes: int = 256
    pooling: str = "sum"
    initializer: Initializer | None = None
    check_ids: bool = True
    name: str = "embedding_tables"

    def __post_init__(self) -> None:
        sizes = self.sizes if isinstance(self.sizes, list | tuple) and self.sizes else [None]
        for size in (*sizes, self.num_stripes):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise GraphError(
                    f"EmbeddingTables: sizes must be positive integers, one for each table, and num_stripes a positive "
                    f"integer; they are {self.sizes!r} and {self.num_stripes!r}"
                )
        if self.pooling not in POOLINGS:
            raise GraphError(f'EmbeddingTables: pooling must be "sum" or "mean", and is {self.pooling!r}')
        check_kinds(self, GraphError)
        check_above_zero(self, "capacity_factor", error=GraphError)

    @property
    def rows(self) -> mtf.Dimension:
        """The dimension of the rows of all tables: their number, rounded up to whole stripes of equal length."""
        return mtf.Dimension("rows", self.num_stripes * self._stripe)

    @property
    def _embedding(self) -> mtf.Dimension:
        return new_dimension(self.embedding)

    def row_numbers(self, table: int) -> np.ndarray:
        """The row of the variable for each id of a table, int64 [sizes[table]].

        Examples:
          >>> mtf.layers.EmbeddingTables((3, 2), mtf.Dimension("embedding", 8), num_stripes=2).row_numbers(1)
          array([4, 2])
        """
        numbers = sum(self.sizes[:table]) + np.arange(self.sizes[table])
        return numbers % self.num_stripes * self._stripe + numbers // self.num_stripes

    def lookup(self, ids: mtf.Tensor, tables_dim: str) -> mtf.Tensor:
        """The vectors [..., embedding] of ids, zeros for a negative id.

        Args:
          ids: int32 or int64, with a dimension that counts the tables.
          tables_dim: the name of that dimension.

        Raises:
          ShapeError: the ids lack the dimension, or have it in another size than the number of tables.
          DtypeError: the ids are not int32 or int64, or are int32 and the tables have more rows than it can number.
        """
        if ids.dtype not in (tf.int32, tf.int64):
            raise DtypeError(f"ids must be int32 or int64, not {ids.dtype.name}; convert with mtf.cast")
        if self.rows.size > ids.dtype.max:
            raise DtypeError(
                f"the tables have {counted(self.rows.size, 'row')}, and {ids.dtype.name} cannot number them; "
                f"give ids of int64"
            )
        dim = ids.shape.get_dim_by_name(tables_dim)
        if dim.size != len(self.sizes):
            raise ShapeError(
                f'ids [{ids.shape}] are for {dim.size} tables along "{dim.name}", but there are {len(self.sizes)}'
            )
        table = mtf.get_variable(ids.mesh, self.name, [self.rows, self._embedding], initializer=self._first_values)
        return mtf.embedding_lookup(table, self._row_of(ids, dim), self.rows, self.capacity_factor)

    def pooled(self, ids: mtf.Tensor, tables_dim: str, bag_dim: str, weights: mtf.Tensor | None = None) -> mtf.Tensor:
        """One vector for each bag of ids: the sum of their vectors, or the mean. An empty bag gives zeros.

        Args:
          ids: [..., tables, bag], int32 or int64. A negative id is ignored. A mean does not count it.
          tables_dim: the name of the dimension that counts the tables.
          bag_dim: the name of the dimension of a bag's ids.
          weights: factors of the vectors, over dimensions of `ids`. A mean is then divided by their sum.

        Raises:
          ShapeError: the ids lack a dimension, or have another number of tables.
          DtypeError: the ids are not int32 or int64, or are int32 and the tables have more rows than it can number.
        """
        bag = ids.shape.get_dim_by_name(bag_dim)
        vectors = self.lookup(ids, tables_dim)
        if weights is not None:
            weights = mtf.cast(weights, vectors.dtype)
            vectors *= weights
        total = mtf.reduce_sum(vectors, reduced_dim=bag)
        if self.pooling == "sum":
            return total
        counted = mtf.cast(self._is_known(ids, tables_dim), vectors.dtype)
        count = mtf.reduce_sum(counted if weights is None else counted * weights, reduced_dim=bag)
        return total / mtf.where(mtf.equal(count, 0.0), 1.0, count)

    @property
    def _stripe(self) -> int:
        return -(-sum(self.sizes) // self.num_stripes)

    @property
    def _first_values(self) -> Initializer:
        return self.initializer or mtf.RandomNormal(stddev=1 / math.sqrt(self._embedding.size))

    def _is_known(self, ids: mtf.Tensor, tables_dim: str) -> mtf.Tensor:
        """Whether each id is one of its table."""
        return mtf.logical_and(mtf.greater_equal(ids, 0), mtf.less(ids, self._of_tables(self.sizes, ids, tables_dim)))

    def _of_tables(self, numbers: Sequence[int], ids: mtf.Tensor, tables_dim: str) -> mtf.Tensor:
        """A number for each table, in the dtype of the ids."""
        tables = ids.shape.get_dim_by_name(tables_dim)
        return mtf.constant(ids.mesh, list(numbers), mtf.Shape([tables]), ids.dtype)

    def _row_of(self, ids: mtf.Tensor, tables: mtf.Dimension) -> mtf.Tensor:
        """The rows of ids, and -1 for an id that its table does not have."""
        is_known = self._is_known(ids, tables.name)
        firsts = self._of_tables(np.cumsum([0, *self.sizes[:-1]]).tolist(), ids, tables.name)
        if self.check_ids:
            # Every table has the id 0, so all ids above its last one are 1 or more.
            sizes = self._of_tables(self.sizes, ids, tables.name)
            is_beyond = mtf.cast(mtf.greater_equal(ids, sizes), tf.float32)
            advice = _ADVICE.format(dim=tables.name, sizes=", ".join(map(str, self.sizes)))
            mtf.check_indices(
                ids, 1, weights=is_beyond, message="an id", fault="beyond the last id of its table", advice=advice
            )
        numbers = mtf.where(is_known, ids, 0) + firsts
        rows = numbers % self.num_stripes * self._stripe + numbers // self.num_stripes
        return mtf.where(is_known, rows, -1)
