"""The slices of variables that a core reads and assigns: TensorFlow's variables, or arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import tensorflow as tf


class VariableSlices(Protocol):
    """One core's slices of a program's variables, by name."""

    def read(self, name: str, dtype: tf.DType) -> tf.Tensor:
        """The present value of a variable."""
        ...

    def assign(self, name: str, value: tf.Tensor, *, is_guarded: bool = False) -> list[tf.Operation]:
        """Assigns a value, and returns the assigning operations, if there are any. `is_guarded`: the value already
        equals the old one if a check fails."""
        ...

    def commit(self, assignments: Callable[[], None], succeeded: tf.Tensor | None) -> None:
        """Makes the assignments at the end of a program, or none of them where the scalar `succeeded` is false."""
        ...


class SlicesByHandle:
    """Slices in TensorFlow's variables, which TensorFlow keeps."""

    def __init__(self, handles: Mapping[str, tf.Tensor]) -> None:
        self._handles = handles

    def read(self, name: str, dtype: tf.DType) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(resource=self._handles[name], dtype=dtype)

    def assign(self, name: str, value: tf.Tensor, *, is_guarded: bool = False) -> list[tf.Operation]:
        return [tf.raw_ops.AssignVariableOp(resource=self._handles[name], value=value)]

    def commit(self, assignments: Callable[[], None], succeeded: tf.Tensor | None) -> None:
        if succeeded is None:
            return assignments()

        def assign() -> tf.Tensor:
            assignments()
            return tf.constant(True)

        tf.cond(succeeded, assign, lambda: tf.constant(False))


class SlicesByValue:
    """Slices that a program receives as arguments, and new slices that it returns.

    Attributes:
      assigned: the new slices, keyed by the variable's name.
    """

    def __init__(self, values: Mapping[str, tf.Tensor]) -> None:
        self.assigned: dict[str, tf.Tensor] = {}
        self._guarded: set[str] = set()
        self._values = values

    def read(self, name: str, dtype: tf.DType) -> tf.Tensor:
        return self._values[name]

    def assign(self, name: str, value: tf.Tensor, *, is_guarded: bool = False) -> list[tf.Operation]:
        self.assigned[name] = value
        self._guarded |= {name} if is_guarded else set()
        return []

    def commit(self, assignments: Callable[[], None], succeeded: tf.Tensor | None) -> None:
        assignments()
        if succeeded is not None:
            # XLA fuses an elementwise choice into the work that computes the elements. A branch would hold both values
            # at once.
            self.assigned |= {
                n: tf.where(succeeded, x, self._values[n]) for n, x in self.assigned.items() if n not in self._guarded
            }
