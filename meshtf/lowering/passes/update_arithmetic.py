"""What an update of variables does to each element, as formulas that can be looked into."""

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
    """A number that is known, or that a step of the program makes.

    known: it. made: its number among inputs and steps.
    """

    known: float | None = None
    made: int | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        return () if self.made is None else (self.made,)

    def tensor(self, values: Callable[[int], tf.Tensor], dtype: tf.DType) -> tf.Tensor:
        """values: what there is of a number."""
        return tf.constant(self.known, dtype) if self.made is None else values(self.made)


@dataclasses.dataclass(frozen=True)
class UpdateArithmetic:
    """Of a fused update.

    Attributes:
      inputs: shape and dtype of each: scalars, and slices of one shape.
      steps: what is done. Inputs are counted first.
      variables: by the number of an input that is a variable's value, that of the new one.
    """

    inputs: Sequence[tuple[tuple[int, ...], tf.DType]]
    steps: Sequence[Step]
    variables: Mapping[int, int]

    @property
    def size(self) -> int:
        """Elements of a slice."""
        return max(math.prod(shape) for shape, _ in self.inputs)

    def operands(self, number: int, kernel: Callable[..., tf.Tensor]) -> tuple[int, ...]:
        """Of a step that is this kernel; of another none."""
        made_by, operands = self._step(number)
        return operands if made_by is kernel else ()

    def scaled(self, number: int) -> tuple[int, Scalar] | None:
        """The slice and the scalar that a step multiplies."""
        return self._with_scalar(number, tf.multiply)

    def increased(self, number: int) -> tuple[int, Scalar] | None:
        """The slice and the scalar that a step adds."""
        return self._with_scalar(number, tf.add)

    def is_given(self, number: int) -> bool:
        """Whether it is a slice, and made of no variable."""
        made_of = self._made_of[number]
        return not self._is_scalar(number) and made_of.isdisjoint(self.variables)

    def is_input(self, number: int) -> bool:
        return number < len(self.inputs)

    def values(self, inputs: Mapping[int, tf.Tensor]) -> Callable[[int], tf.Tensor]:
        """What makes, by number, a step of these inputs."""
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
        """By number, the inputs that it is made of."""
        made_of = [frozenset([n]) for n in range(len(self.inputs))]
        for _, operands in self.steps:
            made_of.append(frozenset[int]().union(*(made_of[n] for n in operands)))
        return made_of
