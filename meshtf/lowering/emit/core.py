"""The core on which local work runs, in a function that is being traced."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.layout import Axes
from meshtf.mesh_impl.host.bfloat16_products import product_dtype
from meshtf.planning import core_positions
from meshtf.planning.local_work.long_sums import summed
from meshtf.planning.plan import Cut, Plan


class TracedCore:
    """A core whose coordinates are known when the program runs.

    Args:
      plan: the program.
      coordinates: the core's position along each mesh axis: int32 [axes], or int32 scalars keyed by the axis name.
      is_cpu: whether a CPU multiplies its matrices without XLA. Then bfloat16 products are computed in float32 if the
        CPU would round them towards zero, and many rows are added in parts.
    """

    def __init__(self, plan: Plan, coordinates: tf.Tensor | Mapping[str, tf.Tensor], *, is_cpu: bool = False) -> None:
        self._is_cpu = is_cpu
        self._sizes = {d.name: d.size for d in plan.mesh_shape}
        if not isinstance(coordinates, Mapping):
            names = plan.mesh_shape.dimension_names
            coordinates = dict(zip(names, tf.unstack(coordinates) if names else [], strict=True))
        self._coordinates = coordinates
        # Each position, begin of a slice and transposed tensor is computed once and reused.
        self._positions: dict[Axes, tf.Tensor] = {}
        self._begins: dict[tuple[int, tuple[Cut, ...]], tf.Tensor] = {}
        self._transposed: dict[tuple[Any, tuple[int, ...]], tf.Tensor] = {}

    def inside(self, *, is_cpu: bool | None = None) -> TracedCore:
        """The same core inside a loop, a branch or a function. It may use tensors from outside. The outside may not use
        its tensors.

        Args:
          is_cpu: as in the constructor; None leaves it unchanged.
        """
        inner = copy.copy(self)
        inner._is_cpu = self._is_cpu if is_cpu is None else is_cpu
        inner._positions, inner._begins = dict(self._positions), dict(self._begins)
        inner._transposed = dict(self._transposed)
        return inner

    def coordinate(self, axes: Axes) -> tf.Tensor:
        if axes not in self._positions:
            position = tf.zeros([], tf.int32) if not axes else self._coordinates[axes[0]]
            for axis in axes[1:]:
                position = position * self._sizes[axis] + self._coordinates[axis]
            self._positions[axes] = position
        return self._positions[axes]

    def begin(self, rank: int, cuts: tuple[Cut, ...]) -> tf.Tensor:
        key = (rank, cuts)
        if key not in self._begins:
            begin: list[tf.Tensor | int] = [0] * rank
            for dim, axes, size in cuts:
                begin[dim] = self.coordinate(axes) * size + begin[dim]
            self._begins[key] = tf.stack(begin)
        return self._begins[key]

    def transposed(self, x: tf.Tensor, permutation: Sequence[int]) -> tf.Tensor:
        key = (x.ref(), tuple(permutation))
        if key not in self._transposed:
            self._transposed[key] = tf.transpose(x, permutation)
        return self._transposed[key]

    def reshaped(self, x: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
        # TensorFlow converts an array in a tenth of the time that a list takes.
        return x if x.shape.as_list() == list(size) else tf.reshape(x, np.array(size, np.int32))

    def product_dtype(self, dtype: tf.DType) -> tf.DType:
        return product_dtype(dtype) if self._is_cpu else dtype

    @property
    def convolves_bfloat16(self) -> bool:
        return not self._is_cpu

    def multiplies_matrices(self, dtype: tf.DType) -> bool:
        # The compiler of TPUs has no product of matrices of int64.
        return self._is_cpu or dtype != tf.int64

    def summed(self, x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
        return summed(x, axes) if self._is_cpu else tf.reduce_sum(x, np.array(axes, np.int32))


def known_coordinates(core: int, plan: Plan) -> Mapping[str, tf.Tensor]:
    """The position of one core along each mesh axis, as int32 scalars. Each is made wherever it is used: one that was
    made inside a loop does not exist outside."""
    return _KnownCoordinates(core_positions.coordinates(core, plan.mesh_shape))


class _KnownCoordinates(dict[str, tf.Tensor]):
    def __init__(self, places: Mapping[str, int]) -> None:
        super().__init__()
        self._places = places

    def __missing__(self, axis: str) -> tf.Tensor:
        return tf.constant(self._places[axis], tf.int32)
