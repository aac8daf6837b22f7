"""Formulas of updates: what an update of variables does to each element, in a form that can be searched.

Inputs and steps are numbered in one row. For w - 0.1 * g the inputs are w (0) and g (1). The steps are 0.1 * g (2) and
w - (2), which is number 3. Then `scaled(2)` gives (1, 0.1), and `operands(3, tf.subtract)` gives (0, 2).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.passes.update_in_blocks import Step
from meshtf.ops.algebra.elementwise_operation import ScalarKernel


@dataclasses.dataclass(frozen=True)
class Scalar:
    """A number that is known before the program runs, or that the program makes.

    known: the number itself. made: its place among inputs and steps.
    """

    known: float | None = None
    made: int | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        return () if self.made is None else (self.made,)

    def tensor(self, values: Callable[[int], tf.Tensor], dtype: tf.DType) -> tf.Tensor:
        """Returns the number as a tensor. `values` returns the tensor of an input or step."""
        return tf.constant(self.known, dtype) if self.made is None else values(self.made)


@dataclasses.dataclass(frozen=True)
class UpdateArithmetic:
    """The arithmetic of a fused update.

    Attributes:
      inputs: shape and dtype of each input: scalars, and slices of one shape.
      steps: the kernels and their operands. Inputs are counted first.
      variables: the number of each variable's new value, by the number of the input with its old one.
    """

    inputs: Sequence[tuple[tuple[int, ...], tf.DType]]
    steps: Sequence[Step]
    variables: Mapping[int, int]

    @property
    def size(self) -> int:
        """The elements of a slice."""
        return max(math.prod(shape) for shape, _ in self.inputs)

    def operands(self, number: int, kernel: Callable[..., tf.Tensor]) -> tuple[int, ...]:
        """Returns the operands of a step that is this kernel, and none for another step."""
        made_by, operands = self._step(number)
        return operands if made_by is kernel else ()

    def scaled(self, number: int) -> tuple[int, Scalar] | None:
        """Returns the slice and the scalar that a step multiplies, or None."""
        return self._with_scalar(number, tf.multiply)

    def increased(self, number: int) -> tuple[int, Scalar] | None:
        """Returns the slice and the scalar that a step adds, or None."""
        return self._with_scalar(number, tf.add)

    def is_given(self, number: int) -> bool:
        """Tells whether it is a slice that no variable enters."""
        made_of = self._made_of[number]
        return not self._is_scalar(number) and made_of.isdisjoint(self.variables)

    def is_input(self, number: int) -> bool:
        return number < len(self.inputs)

    def values(self, inputs: Mapping[int, tf.Tensor]) -> Callable[[int], tf.Tensor]:
        """Returns a function that computes an input or step from these inputs, by its number."""
        known = dict(inputs)

        def value(number: int) -> tf.Tensor:
            if number not in known:
                kernel, operands = self._step(number)
                known[number] = kernel(*map(value, operands))
            return known[number]

        return value

    def _with_scalar(self, number: int, kernel: Callable[..., tf.Tensor]) -> tuple[int, Scalar] | None:
        made_by, operands = self._step(number)
        if isinstance(made_by, ScalarKernel) and made_by.function is kernel:
            return operands[0], Scalar(known=made_by.scalar)
        scalars = [n for n in operands if self._is_scalar(n)]
        slices = [n for n in operands if not self._is_scalar(n)]
        if made_by is not kernel or len(scalars) != 1:
            return None
        return slices[0], Scalar(made=scalars[0])

    def _is_scalar(self, number: int) -> bool:
        return all(not self.inputs[n][0] for n in self._made_of[number])

    def _step(self, number: int) -> tuple[Any, tuple[int, ...]]:
        return (None, ()) if self.is_input(number) else self.steps[number - len(self.inputs)]

    @functools.cached_property
    def _made_of(self) -> Sequence[frozenset[int]]:
        """The inputs that each number is made of."""
        made_of = [frozenset([n]) for n in range(len(self.inputs))]
        for _, operands in self.steps:
            made_of.append(frozenset[int]().union(*(made_of[n] for n in operands)))
        return made_of
