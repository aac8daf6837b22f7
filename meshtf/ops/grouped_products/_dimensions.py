"""The roles of the dimensions of rows in groups, and of the groups' matrices."""

from __future__ import annotations

import dataclasses

from meshtf.dimension import Dimension, Shape
from meshtf.errors import ShapeError
from meshtf.ops.algebra.broadcasting import union


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedDimensions:
    """The roles of dimensions of rows x, other rows y, matrices w and the sizes of groups, each in any order.

    In y = x · w, x is contracted. In w = the sum over rows of x · y, each group makes its matrix.

    Attributes:
      sets: dimensions along which both rows and matrices differ.
      tables: dimensions along which rows and their groups differ, but matrices do not.
      rows: the dimension of a table's rows, whose groups follow one another.
      groups: the dimension of w that counts groups. Each group has one matrix.
      counted: the same dimension in the sizes, perhaps by another name.
      of_x: the dimensions that only x and w have.
      of_y: the dimensions that only y and w have.
    """

    sets: Shape
    tables: Shape
    rows: Dimension
    groups: Dimension
    counted: Dimension
    of_x: Shape
    of_y: Shape

    @classmethod
    def of(cls, x: Shape, w: Shape, sizes: Shape, rows: Dimension, groups: Dimension) -> GroupedDimensions:
        """The roles of the dimensions of these shapes.

        Raises:
          ShapeError: a dimension has no role.
        """
        union([x, w - groups])
        apart = [d for d in sizes if not x.has(d.name)]
        if len(apart) != 1 or apart[0].size != groups.size or sizes.has(rows.name):
            raise ShapeError(
                f"sizes [{sizes}] must have one dimension that x [{x}] lacks, of the size of {groups}; all others must "
                f'be dimensions of x that separate tables of rows, and none may be "{rows.name}"'
            )
        if x.has(groups.name) or w.has(rows.name):
            raise ShapeError(f'x [{x}] must not have "{groups.name}", and w [{w}] must not have "{rows.name}"')
        shared = Shape([d for d in sizes if d != apart[0]])
        union([x, shared])
        free = [d for d in x if d != rows and not w.has(d.name) and not shared.has(d.name)]
        if free:
            raise ShapeError(f'x [{x}] has "{free[0].name}", which neither w [{w}] nor sizes [{sizes}] has')
        of_x = [d for d in w if x.has(d.name) and not shared.has(d.name)]
        of_y = [d for d in w if not x.has(d.name) and d != groups]
        sets = [d for d in shared if w.has(d.name)]
        tables = [d for d in shared if not w.has(d.name)]
        return cls(Shape(sets), Shape(tables), rows, groups, apart[0], Shape(of_x), Shape(of_y))

    @property
    def exchanged(self) -> GroupedDimensions:
        """The same with x and y exchanged."""
        return dataclasses.replace(self, of_x=self.of_y, of_y=self.of_x)

    @property
    def x(self) -> Shape:
        return Shape([*self.sets, *self.tables, self.rows, *self.of_x])

    @property
    def y(self) -> Shape:
        return self.exchanged.x

    @property
    def w(self) -> Shape:
        return Shape([*self.sets, self.groups, *self.of_x, *self.of_y])

    @property
    def sizes(self) -> Shape:
        return Shape([*self.sets, *self.tables, self.counted])
