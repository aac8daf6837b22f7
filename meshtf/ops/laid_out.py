"""Operations whose result may be laid out as another tensor: a gradient has its primal's layout."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph import Operation, Tensor
from meshtf.lowering.layouts import LayoutTable, ResolvedLayout


class LaidOutOperation(Operation, abc.ABC):
    """One output, in the layout of the tensor `like` (of the same shape) where that is given.

    The gradient of a dimension that the operation removed must not be laid out by the rules where the primal's layout
    was overridden: the rules' could be illegal there.
    """

    def __init__(
        self, inputs: Sequence[Tensor], shape: Shape, dtype: tf.DType, *, name: str, like: Tensor | None
    ) -> None:
        assert like is None or like.shape == shape, (like, shape)
        super().__init__(inputs, [(shape, dtype)], name=name)
        self._like = like
        if like is not None:
            self.overrides_layout = like.is_overridden

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return super().output_layouts(layouts) if self._like is None else [layouts.resolved(self._like)]
