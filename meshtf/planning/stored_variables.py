"""The protocols of variables and of their storage, with the members that planning uses."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from meshtf.call_sites import Site
from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable


class StoredVariable(Protocol):
    """A variable, with the members that the planner uses."""

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
    """A storage in which a pass may choose a variable's layout, if nothing else decides it."""

    def takes(self, variable: StoredVariable, layout: TensorLayout, layouts: LayoutTable) -> bool: ...
