"""The two cells of AmoebaNet-D (Real et al. 2018, "Regularized Evolution for Image Classifier Architecture Search")."""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.models.amoeba_net.operations import FILTERS, Normalization, applied, convolved, halved

Pair = tuple[tuple[str, int], tuple[str, int]]
"""Two operations, each with the number of the state that it is applied to. Their results are added up."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell makes five states from two, and concatenates some of the seven along the filters.

    State 0 is the result of the cell before, and state 1 that of the cell before it, both brought to the cell's number
    of filters.

    Attributes:
      pairs: how each further state is made.
      result: the states that are the cell's result.
      stride: the stride of operations on states 0 and 1.
    """

    pairs: tuple[Pair, ...]
    result: tuple[int, ...]
    stride: int

    def __call__(self, x: mtf.Tensor, before: mtf.Tensor, filters: int, normalize: Normalization) -> mtf.Tensor:
        """The result, [.., height / stride, width / stride, filters times the number of result states].

        Args:
          x: the result of the cell before, [.., height, width, filters].
          before: the result of the cell before that, of the same size or of twice its height and width.
          filters: the filters of each state.
          normalize: normalizes, and records statistics.
        """
        states = [convolved(x, filters, normalize, name="enter"), _fitted(before, x, filters, normalize)]
        for number, pair in enumerate(self.pairs):
            terms = list[mtf.Tensor]()
            for side, (operation, state) in zip(("left", "right"), pair, strict=True):
                stride = self.stride if state < 2 else 1
                with mtf.variable_scope(f"pair_{number}/{side}"):
                    terms.append(applied(operation, states[state], stride, normalize))
            states.append(terms[0] + terms[1])
        return mtf.concat([states[n] for n in self.result], FILTERS)


NORMAL = Cell(
    pairs=(
        (("1x1", 1), ("max_pool_3x3", 1)),
        (("none", 1), ("1x7_7x1", 0)),
        (("1x1", 0), ("1x7_7x1", 0)),
        (("max_pool_3x3", 2), ("none", 2)),
        (("avg_pool_3x3", 1), ("1x1", 5)),
    ),
    result=(0, 3, 4, 6),
    stride=1,
)
"""The cell that keeps the size of the images."""

REDUCTION = Cell(
    pairs=(
        (("max_pool_2x2", 0), ("max_pool_3x3", 0)),
        (("none", 2), ("3x3", 1)),
        (("1x7_7x1", 2), ("max_pool_3x3", 2)),
        (("none", 3), ("max_pool_2x2", 1)),
        (("avg_pool_3x3", 2), ("1x1", 3)),
    ),
    result=(4, 5, 6),
    stride=2,
)
"""The cell that halves height and width."""


def _fitted(before: mtf.Tensor, x: mtf.Tensor, filters: int, normalize: Normalization) -> mtf.Tensor:
    """`before` with this number of filters, and the height and width of x."""
    if before.shape[-3] != x.shape[-3] or before.shape[-2] != x.shape[-2]:
        return halved(before, filters, normalize, name="halve")
    if before.shape[-1].size != filters:
        return convolved(before, filters, normalize, name="fit")
    return before
