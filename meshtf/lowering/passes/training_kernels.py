"""Replaces an update of variables by one of TensorFlow's training kernels, which works in the variables' memory.

An update is recognised by its arithmetic, whoever wrote it:

    w = w - rate * g                                                  ResourceApplyGradientDescent
    v = momentum * v + g,  w = w - v  or  w - (momentum * v + g)      ResourceApplyMomentum
    m = m + a * (g - m),   v = v + b * (g^2 - v),
    w = w - rate * m / (sqrt(v) + epsilon), and less a share of w     ResourceApplyAdam

A kernel exists when a program starts. XLA takes some 60 ms to compile an update for each shape of weights, and as much
memory as all of a small program. To start a kernel costs a fraction of a call of a compiled function. Its results equal
those of the compiled update but for rounding.

Each finder below goes from the new value of a variable backwards. For w - rate * g it asks: is the last step a
subtraction, is its first operand the old w, and is its second operand a product of a scalar and of a slice that no
variable enters? A step that fits nowhere ends the search, and the update is compiled.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import tensorflow as tf

from meshtf.lowering.passes.update_arithmetic import Scalar, UpdateArithmetic

_LARGEST_BESIDE_OTHERS = 1 << 16
"""The most elements of a slice whose kernel may need operations beside it. A cache still holds a few such slices. With
larger ones each operation would read and write memory again, where a compiled update does so once."""


class TrainingKernel(Protocol):
    """An update that one kernel does, perhaps with a few operations beside it."""

    @property
    def update(self) -> UpdateArithmetic:
        """The arithmetic of the update."""
        ...

    @property
    def needs(self) -> tuple[int, ...]:
        """The numbers of the values that the kernel is given."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether no other operation on slices is needed."""
        ...

    def emit(self, handles: Mapping[int, tf.Tensor], values: Callable[[int], tf.Tensor]) -> None:
        """Adds the kernel to the function that is being traced.

        Args:
          handles: variables, by the number of the input that is their value.
          values: returns a given value, by its number.
        """
        ...


def training_kernel(update: UpdateArithmetic, dtype: tf.DType) -> TrainingKernel | None:
    """Returns the kernel for an update that only assigns variables of one dtype.

    Returns None if no kernel does it, or if compiling the update is worth its time.
    """
    if dtype not in (tf.float32, tf.float64):
        return None
    for find in (_gradient_descent, _momentum, _adam):
        kernel = find(update)
        if kernel is not None and (kernel.is_alone or update.size <= _LARGEST_BESIDE_OTHERS):
            return kernel
    return None


@dataclasses.dataclass(frozen=True)
class _GradientDescent:
    update: UpdateArithmetic
    weight: int
    rate: Scalar
    grad: int

    @property
    def needs(self) -> tuple[int, ...]:
        return self.grad, *self.rate.needs

    @property
    def is_alone(self) -> bool:
        return self.update.is_input(self.grad)

    def emit(self, handles: Mapping[int, tf.Tensor], values: Callable[[int], tf.Tensor]) -> None:
        grad = values(self.grad)
        rate = self.rate.tensor(values, grad.dtype)
        tf.raw_ops.ResourceApplyGradientDescent(var=handles[self.weight], alpha=rate, delta=grad)


def _gradient_descent(update: UpdateArithmetic) -> _GradientDescent | None:
    if len(update.variables) != 1:
        return None
    ((weight, new_weight),) = update.variables.items()
    match update.operands(new_weight, tf.subtract):
        case (old, change) if old == weight and (scaled := update.scaled(change)) is not None:
            grad, rate = scaled
            return _GradientDescent(update, weight, rate, grad) if update.is_given(grad) else None
    return None


@dataclasses.dataclass(frozen=True)
class _Momentum:
    """`change`: the gradient times the learning rate."""

    update: UpdateArithmetic
    weight: int
    velocity: int
    momentum: Scalar
    change: int
    is_nesterov: bool

    @property
    def needs(self) -> tuple[int, ...]:
        return self.change, *self.momentum.needs

    @property
    def is_alone(self) -> bool:
        return self.update.is_input(self.change)

    def emit(self, handles: Mapping[int, tf.Tensor], values: Callable[[int], tf.Tensor]) -> None:
        change = values(self.change)
        tf.raw_ops.ResourceApplyMomentum(
            var=handles[self.weight],
            accum=handles[self.velocity],
            # The program has multiplied the gradient by the learning rate already.
            lr=tf.ones([], change.dtype),
            grad=change,
            momentum=self.momentum.tensor(values, change.dtype),
            use_nesterov=self.is_nesterov,
        )


def _momentum(update: UpdateArithmetic) -> _Momentum | None:
    if len(update.variables) != 2:
        return None
    # Nothing says which variable is the weight and which is a slot, so each order is tried.
    for (weight, new_weight), (velocity, new_velocity) in itertools.permutations(update.variables.items()):
        match update.operands(new_velocity, tf.add), update.operands(new_weight, tf.subtract):
            case (kept, change), (old, moved) if old == weight and update.is_given(change):
                scaled = update.scaled(kept)
                if scaled is None or scaled[0] != velocity:
                    continue
                if moved == new_velocity:
                    return _Momentum(update, weight, velocity, scaled[1], change, is_nesterov=False)
                match update.operands(moved, tf.add):
                    case (ahead, again) if again == change and update.scaled(ahead) == (new_velocity, scaled[1]):
                        return _Momentum(update, weight, velocity, scaled[1], change, is_nesterov=True)
    return None


@dataclasses.dataclass(frozen=True)
class _Adam:
    """`decay`: the share of the weight that is subtracted. `mean_share`, `square_share`: the share of new terms
    in each moment.
    """

    update: UpdateArithmetic
    weight: int
    mean: int
    square: int
    mean_share: Scalar
    square_share: Scalar
    rate: Scalar
    epsilon: Scalar
    decay: Scalar | None
    grad: int

    @property
    def needs(self) -> tuple[int, ...]:
        scalars = [self.mean_share, self.square_share, self.rate, self.epsilon]
        if self.decay is not None:
            scalars.append(self.decay)
        return self.grad, *(n for scalar in scalars for n in scalar.needs)

    @property
    def is_alone(self) -> bool:
        return self.decay is None and self.update.is_input(self.grad)

    def emit(self, handles: Mapping[int, tf.Tensor], values: Callable[[int], tf.Tensor]) -> None:
        grad = values(self.grad)
        dtype, weight = grad.dtype, handles[self.weight]
        if self.decay is not None:
            before = tf.raw_ops.ReadVariableOp(resource=weight, dtype=dtype)
            # The kernel knows no weight decay, so an operation before it subtracts the weight's share.
            tf.raw_ops.AssignSubVariableOp(resource=weight, value=before * self.decay.tensor(values, dtype))
        # Powers of zero switch off the kernel's own correction of the first steps: the program's rate has its own.
        zero = tf.zeros([], dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=weight,
            m=handles[self.mean],
            v=handles[self.square],
            beta1_power=zero,
            beta2_power=zero,
            lr=self.rate.tensor(values, dtype),
            beta1=_rest(self.mean_share, values, dtype),
            beta2=_rest(self.square_share, values, dtype),
            epsilon=self.epsilon.tensor(values, dtype),
            grad=grad,
        )


def _adam(update: UpdateArithmetic) -> _Adam | None:
    if len(update.variables) != 3:
        return None
    for weight, mean, square in itertools.permutations(update.variables):
        moments = _adam_moments(update, mean, square)
        change = _adam_change(update, weight, update.variables[mean], update.variables[square])
        if moments is not None and change is not None:
            (grad, mean_share, square_share), (rate, epsilon, decay) = moments, change
            return _Adam(update, weight, mean, square, mean_share, square_share, rate, epsilon, decay, grad)
    return None


def _adam_moments(update: UpdateArithmetic, mean: int, square: int) -> tuple[int, Scalar, Scalar] | None:
    """Returns the gradient, and the shares of new terms in the two moments."""
    new_mean, new_square = _moving_mean(update, mean), _moving_mean(update, square)
    if new_mean is None or new_square is None:
        return None
    grad, mean_share = new_mean
    squared, square_share = new_square
    if not update.is_given(grad) or update.operands(squared, tf.square) != (grad,):
        return None
    return grad, mean_share, square_share


def _moving_mean(update: UpdateArithmetic, variable: int) -> tuple[int, Scalar] | None:
    """Returns the term that enters a mean, and its share: old + (entering - old) * share."""
    match update.operands(update.variables[variable], tf.add):
        case (old, scaled) if old == variable and (moved := update.scaled(scaled)) is not None:
            difference, share = moved
            match update.operands(difference, tf.subtract):
                case (entering, same) if same == variable:
                    return entering, share
    return None


def _adam_change(
    update: UpdateArithmetic, weight: int, new_mean: int, new_square: int
) -> tuple[Scalar, Scalar, Scalar | None] | None:
    """Returns rate, epsilon and decay of weight - rate * mean / (sqrt(square) + epsilon) - weight * decay.

    The last term may be absent, and then decay is None.
    """
    match update.operands(update.variables[weight], tf.subtract):
        case (old, change) if old == weight:
            decay = None
            match update.operands(change, tf.add):
                case (moved, decayed) if (scaled := update.scaled(decayed)) is not None and scaled[0] == weight:
                    change, decay = moved, scaled[1]
            match update.operands(change, tf.divide):
                case (above, below):
                    scaled, increased = update.scaled(above), update.increased(below)
                    if scaled is None or increased is None or scaled[0] != new_mean:
                        return None
                    if update.operands(increased[0], tf.sqrt) == (new_square,):
                        return scaled[1], increased[1], decay
    return None


def _rest(share: Scalar, values: Callable[[int], tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Returns beta = 1 - share. The kernel takes the share as 1 - beta."""
    if share.known is not None:
        return tf.constant(dtype.as_numpy_dtype(1) - dtype.as_numpy_dtype(share.known), dtype)
    return 1 - share.tensor(values, dtype)
