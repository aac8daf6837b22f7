"""The collectives that every backend emits inside the trace of a per-core program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import tensorflow as tf

from meshtf.planning.local_work.reductions import Reduction


class BackendCollectives(Protocol):
    """Every `x` has a static shape. Blocks are in order of mesh position, the first of the axes major."""

    def all_reduce(self, x: tf.Tensor, axes: Sequence[str], reduction: Reduction) -> tf.Tensor:
        """Reduces `x`, of any shape, over the cores along `axes`. For bool, "add" and "max" mean "or", the others
        "and"."""
        ...

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """Concatenates the `x` of every core along `axes` in dimension `dim`."""
        ...

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        """Sends block j of `split_dim` to position j along `axes`, and concatenates the received blocks along
        `concat_dim`."""
        ...

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """Sums over the cores along `axes` ("or" of bool). Position j keeps block j of dimension `dim` of the sum."""
        ...

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        """Sends the `x` of core c to core `destinations[c]`, bit for bit."""
        ...
