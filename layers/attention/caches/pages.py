"""Keys and values of many sequences in the pages of one cache, of which each sequence holds some.

All layers of a stack share one cache: the positions of layer l follow those of layer l - 1. A loop over layers carries
it, and each layer writes its rows in place. The positions come first, so that a row is contiguous in memory, and
nothing is transposed.

With pages of 4 positions, a sequence whose pages are 7 and 2 has its position 5 at index 2 · 4 + 1 of the cache. Two
sequences with the same beginning may share a page. See Kwon et al. 2023, "Efficient memory management for large
language model serving with PagedAttention".
"""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.layers.attention.tokens import MEMORY_LENGTH

PAGED_LENGTH, PAGES = "paged_length", "pages"
_WRITTEN = "written"


@dataclasses.dataclass(frozen=True)
class PageView:
    """The places of rows in a paged cache. A row is one token at its position; rows of one sequence have equal tables.

    A step writes the tokens of all rows first. So several rows may be consecutive tokens of one sequence: each sees the
    ones before it. A read copies `memory_length` positions for each row, whatever the row's own length is.

    Attributes:
      place: int32 [batch], the index in the cache at which a row writes, or -1 to write nothing.
      index: int32 [batch, memory_length], the index of each of the row's positions; -1 after the row's own position.
    """

    place: mtf.Tensor
    index: mtf.Tensor

    @classmethod
    def of(cls, table: mtf.Tensor, position: mtf.Tensor, page_size: int) -> PageView:
        """The places of rows.

        Args:
          table: int32 [batch, pages], the pages of each row's sequence in order; -1 where it has none.
          position: int32 [batch]. It is negative in a row that is not used.
          page_size: the number of positions of a page.
        """
        memory = mtf.Dimension(MEMORY_LENGTH, table.shape[PAGES].size * page_size)
        places = mtf.range(table.mesh, memory)
        rows = table.shape - [table.shape[PAGES]]
        shape = rows + [memory]
        page = mtf.gather(table, places // page_size, PAGES, output_shape=shape)
        offset = places % page_size
        index = mtf.add(page * page_size, offset, output_shape=shape)
        # What a page held before must not count, not even as 0 times NaN.
        is_seen = mtf.less_equal(places, position, output_shape=shape)
        index = mtf.where(mtf.logical_and(is_seen, mtf.greater_equal(page, 0)), index, -1, output_shape=shape)
        return cls(mtf.where(position < 0, -1, mtf.gather(index, position, memory)), index)

    def written(self, pool: mtf.Tensor, new: mtf.Tensor) -> mtf.Tensor:
        """A cache [paged_length, ..] with what each row writes, [batch, ..]. No two rows write at one place."""
        (row,) = self.place.shape
        place, new = (x.rename({row.name: _WRITTEN}) for x in (self.place, new))
        return mtf.scatter_update(pool, place, new, PAGED_LENGTH, are_distinct=True)

    def read(self, pool: mtf.Tensor) -> mtf.Tensor:
        """The part of a cache [paged_length, ..] that each row sees: [batch, memory_length, ..]; 0 elsewhere."""
        return mtf.gather(pool, self.index, PAGED_LENGTH)

    def in_layer(self, number: mtf.Tensor, num_positions: int) -> PageView:
        """The places in the part of a layer, whose number is an int32 scalar. `num_positions`: those of a layer."""
        first = number * num_positions
        return PageView(*(mtf.where(x < 0, -1, x + first, output_shape=x.shape) for x in (self.place, self.index)))


def paged(x: mtf.Tensor) -> mtf.Tensor:
    """A cache of one sequence as the cache of many: its `memory_length` becomes `paged_length`, and comes first."""
    x = x.rename({MEMORY_LENGTH: PAGED_LENGTH})
    return x.transpose([x.shape[PAGED_LENGTH], *(x.shape - [x.shape[PAGED_LENGTH]])])
