"""The slices of variables that a core reads and assigns: TensorFlow's variables, or arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import tensorflow as tf


class VariableSlices(Protocol):
    """One core's slices of a program's variables, by name."""

    def read(self, name: str, dtype: tf.DType) -> tf.Tensor:
        """The value that a variable has now."""
        ...

    def assign(self, name: str, value: tf.Tensor, *, is_guarded: bool = False) -> list[tf.Operation]:
        """Gives it a value, which if `is_guarded` is its old one where the program fails. Returns the operations that
        do so, if any do."""
        ...

    def commit(self, assignments: Callable[[], None], succeeded: tf.Tensor | None) -> None:
        """Makes the assignments at the end of a program, or none of them where the scalar `succeeded` is false."""
        ...


class SlicesByHandle:
    """TensorFlow's variables, which it keeps."""

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
    """Values that a program is given, and others that it gives back.

    Attributes:
      assigned: by name, the slices that have a new value.
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
            # A choice of elements becomes part of what computes them; a branch would hold both at once.
            self.assigned |= {
                n: tf.where(succeeded, x, self._values[n]) for n, x in self.assigned.items() if n not in self._guarded
            }
