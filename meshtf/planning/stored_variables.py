"""The protocols of variables and of their storage, as far as planning must know them."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from meshtf.call_sites import Site
from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable


class StoredVariable(Protocol):
    """A variable, as far as the planner must know it."""

    shape: Shape
    unpadded_shape: Shape
    site: Site

    @property
    def full_name(self) -> str: ...

    @property
    def stacked_dims(self) -> Shape: ...

    @property
    def saved_names(self) -> tuple[str, ...]: ...

    @property
    def value(self) -> Tensor: ...

    @property
    def slice_dtype(self) -> tf.DType: ...


class Storage(Protocol):
    """Decides in which layout a variable is kept between steps."""

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout: ...


class OpenStorage(Storage, Protocol):
    """Takes what a pass chooses, where nothing else decides."""

    def takes(self, variable: StoredVariable, layout: TensorLayout, layouts: LayoutTable) -> bool: ...
