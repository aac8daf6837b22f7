"""The slices of a tensor on all cores, as the `lower` of an operation class uses them."""

from __future__ import annotations

import dataclasses
from typing import NoReturn

import tensorflow as tf

from meshtf.planning.plan import Value

_WITHOUT_A_TENSOR = {"tensor_list", "one_slice", "all_slices", "from_tensor_list"}


@dataclasses.dataclass(frozen=True, eq=False)
class LaidOutTensor:
    """A slice on each core. Functions of slices take it and return it. It holds no tf.Tensor.

    Attributes:
      value: the plan's value. If no tensor of the language has this value, its first dimensions are mesh axes.
      mesh_axes: the number of these dimensions. Each has size 1 on a core.
    """

    value: Value
    mesh_axes: int = 0

    @property
    def slice_shape(self) -> list[int]:
        return list(self.value.slice_shape[self.mesh_axes :])

    @property
    def dtype(self) -> tf.DType:
        return self.value.dtype

    @property
    def axes(self) -> frozenset[str]:
        """The mesh axes along which cores may hold different slices."""
        return self.value.layout.used

    def to_laid_out_tensor(self) -> LaidOutTensor:
        """Returns itself. No sum is ever pending here."""
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if name in _WITHOUT_A_TENSOR:
            raise AttributeError(
                f"LaidOutTensor.{name} is not here: one program is made for all cores, and a slice is a tf.Tensor only "
                f"inside the function that mesh_impl.slicewise(fn, *laid_out_tensors) is given; collectives are "
                f"mesh_impl.allreduce, allconcat, allsplit, alltoall and shift_by_n_processors"
            )
        raise AttributeError(f"a LaidOutTensor has no attribute {name!r}")

    def __str__(self) -> str:
        axes = f", one of its own along {'+'.join(sorted(self.axes))}" if self.axes else ", the same on every core"
        return f"{self.slice_shape} {self.dtype.name}{axes}"
