"""Optimizers with the original's state names, so its checkpoints can be restored."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Shape
from meshtf.compat.mesh_tensorflow._graph import graph_of
from meshtf.compat.mesh_tensorflow._variables import assign, assign_sub, get_variable
from meshtf.compat.mesh_tensorflow.runs.updates import Updates
from meshtf.errors import UsageError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.variables.variable import Variable

Rate: TypeAlias = "float | tf.Tensor | Tensor"
"""A learning rate: a number, or a scalar of TensorFlow's or of the language."""


class Optimizer:
    """The base of optimizers. A subclass defines `apply_grad`, which handles one gradient.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> class SignDescent(old.optimize.Optimizer):
      ...     def apply_grad(self, grad, var):
      ...         return [old.assign_sub(var, 0.01 * old.sign(grad))]
    """

    def apply_grads(self, grads: Sequence[Tensor | None], variables: Sequence[Variable]) -> list[Updates]:
        """One update of all these variables, in a list, for `lowering.lowered_operation`.

        A variable without a gradient stays as it is, with a warning. The list is empty if no variable has one.
        """
        operations: list[Operation | Updates] = []
        for grad, variable in zip(grads, variables, strict=True):
            if grad is None:
                warnings.warn(f"variable {variable.full_name} has no gradient, and is left as it is", stacklevel=2)
                continue
            operations += self.apply_grad(grad, variable)
        return [Updates.of(operations)] if operations else []

    def apply_grad(self, grad: Tensor, var: Variable) -> list[Operation]:
        """The assignments that a gradient makes to one variable and to the optimizer's state for it."""
        raise NotImplementedError(
            f"{type(self).__name__} must define apply_grad(grad, var), which handles one gradient"
        )


class SgdOptimizer(Optimizer):
    """w <- w - learning_rate * g."""

    def __init__(self, learning_rate: Rate) -> None:
        self._learning_rate = learning_rate

    @property
    def learning_rate(self) -> Rate:
        return self._learning_rate

    def apply_grad(self, grad: Tensor, var: Variable) -> list[Operation]:
        return [assign_sub(var, grad * self._learning_rate)]


class MomentumOptimizer(Optimizer):
    """v <- momentum * v + learning_rate * g, then w <- w - v with the new v. The state v is `<w>_momentum_v`."""

    def __init__(self, learning_rate: Rate, momentum: Rate) -> None:
        self._learning_rate, self._momentum = learning_rate, momentum

    def apply_grad(self, grad: Tensor, var: Variable) -> list[Operation]:
        before = slot(var, f"{var.full_name}_momentum_v", var.shape)
        velocity = mtf.cast(grad, tf.float32) * self._learning_rate + before * self._momentum
        return [assign(before, velocity), assign_sub(var, velocity)]


class AdamWeightDecayOptimizer(Optimizer):
    """Adam without bias correction and with decoupled weight decay, as in BERT (Devlin et al. 2018).

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay_rate w)

    Args:
      learning_rate: a number, or a scalar.
      weight_decay_rate: the share of a weight that a step with learning rate 1 removes.
      beta_1: the decay of m, which is `<w>/adam_m`.
      beta_2: the decay of v, which is `<w>/adam_v`.
      epsilon: a number that is added to the root of v.
      exclude_from_weight_decay: regular expressions. A variable does not decay if one of them is found in its name.
    """

    def __init__(
        self,
        learning_rate: Rate,
        weight_decay_rate: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Sequence[str] | None = None,
    ) -> None:
        self.learning_rate, self.weight_decay_rate = learning_rate, weight_decay_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay or ()

    def apply_grad(self, grad: Tensor, var: Variable) -> list[Operation]:
        grad = mtf.cast(grad, tf.float32)
        m, v = (slot(var, f"{var.full_name}/adam_{which}", var.shape) for which in "mv")
        next_m = m * self.beta_1 + grad * (1.0 - self.beta_1)
        next_v = v * self.beta_2 + mtf.square(grad) * (1.0 - self.beta_2)
        update = next_m / (mtf.sqrt(next_v) + self.epsilon)
        if self.weight_decay_rate and not any(re.search(r, var.full_name) for r in self.exclude_from_weight_decay):
            update += mtf.cast(var.value, tf.float32) * self.weight_decay_rate
        return [assign_sub(var, update * self.learning_rate), assign(m, next_m), assign(v, next_v)]


class AdafactorOptimizer(Optimizer):
    """Adafactor as in Mesh TensorFlow (Shazeer and Stern 2018). See `meshtf.optimize.AdafactorOptimizer`.

    The step number is TensorFlow's global step, which the program must increment.

    Args:
      multiply_by_parameter_scale: whether steps grow with the weights.
      learning_rate: a number or a scalar. By default min(0.01, 1 / sqrt(step + 1)), and 0.05 of this if steps do not
        grow with the weights.
      decay_rate: the decay of the second moment: a number, a scalar, or a function of the step, which is a float32
        scalar. By default 1 - (step + 1)^-0.8.
      beta1: the decay of the mean of updates. 0 means no mean.
      clipping_threshold: the largest root mean square of an update. None means no limit.
      factored: whether to keep the second moment of large weights as rows and columns.
      epsilon1: a number that is added to squares of gradients.
      epsilon2: the least root mean square that counts as the size of a weight.
      min_dim_size_to_factor: a weight is factored if its second largest dimension has at least this size.
      stacked_dim_names: dimensions that count layers.
      exclude_from_parameter_scale: texts. A variable with one in its name has steps that do not grow with it.
    """

    def __init__(  # noqa: PLR0913  # the original's parameters
        self,
        multiply_by_parameter_scale: bool = True,
        learning_rate: Rate | None = None,
        decay_rate: Rate | Callable[[tf.Tensor], Any] | None = None,
        beta1: float = 0.0,
        clipping_threshold: float | None = 1.0,
        factored: bool = True,
        epsilon1: float = 1e-30,
        epsilon2: float = 1e-3,
        min_dim_size_to_factor: int = 128,
        stacked_dim_names: Sequence[str] | None = None,
        exclude_from_parameter_scale: Sequence[str] | None = None,
    ) -> None:
        self._scales = multiply_by_parameter_scale
        self._learning_rate, self._decay_rate = learning_rate, decay_rate
        self._beta1, self._clipping_threshold, self._factored = beta1, clipping_threshold, factored
        self._epsilon1, self._epsilon2 = epsilon1, epsilon2
        self._smallest = min_dim_size_to_factor
        self._stacked = tuple(stacked_dim_names or ())
        self._unscaled = tuple(exclude_from_parameter_scale or ())

    def _rate(self, var: Variable) -> Rate:
        if self._learning_rate is not None:
            return self._learning_rate
        rate = tf.minimum(tf.math.rsqrt(_step_of(var) + 1.0), 0.01)
        return rate if self._scales else rate * 0.05

    def _decay(self, var: Variable) -> Rate:
        if callable(self._decay_rate):
            return self._decay_rate(_step_of(var))
        return _decay_pow(_step_of(var), 0.8) if self._decay_rate is None else self._decay_rate

    def apply_grad(self, grad: Tensor, var: Variable) -> list[Operation]:
        grad, value = mtf.cast(grad, tf.float32), mtf.cast(var.value, tf.float32)
        update, operations = self._direction(grad, var)
        if self._clipping_threshold is not None:
            update /= mtf.maximum(reduce_rms(update) / self._clipping_threshold, 1.0)
        change = update * self._scale(value, var)
        if self._beta1:
            mean = slot(var, f"{var.full_name}_slot_m", var.shape)
            change = mean * self._beta1 + change * (1.0 - self._beta1)
            operations.append(assign(mean, change))
        return [assign_sub(var, change), *operations]

    def _direction(self, grad: Tensor, var: Variable) -> tuple[Tensor, list[Operation]]:
        """The gradient over the root of its second moment, and the assignments that update the moment."""
        squares = mtf.square(grad) + self._epsilon1
        dims = self._factored_dims(var.shape)
        if dims is None:
            v, kept = self._moment(var, "v", var.shape, squares)
            return grad * mtf.rsqrt(v), [kept]
        smaller, larger = dims
        rows, kept_rows = self._moment(var, "vr", var.shape - larger, squares)
        columns, kept_columns = self._moment(var, "vc", var.shape - smaller, squares)
        # The outer product of rows and columns contains the mean of the squares twice. This divides by it once.
        relative = rows / mtf.reduce_mean(rows, output_shape=rows.shape - smaller)
        return grad * mtf.rsqrt(relative) * mtf.rsqrt(columns), [kept_rows, kept_columns]

    def _moment(self, var: Variable, which: str, shape: language.Shape, squares: Tensor) -> tuple[Tensor, Operation]:
        before = slot(var, f"{var.full_name}_slot_{which}", shape)
        decay = self._decay(var)
        now = before * decay + mtf.reduce_mean(squares, output_shape=shape) * (1.0 - decay)
        return now, assign(before, now)

    def _scale(self, value: Tensor, var: Variable) -> Any:
        if not self._scales or any(text in var.full_name for text in self._unscaled):
            return self._rate(var)
        layers = Shape([d for d in value.shape if d.name in self._stacked])
        return mtf.maximum(reduce_rms(value, output_shape=layers), self._epsilon2) * self._rate(var)

    def _factored_dims(self, shape: language.Shape) -> tuple[language.Dimension, language.Dimension] | None:
        # Of equal dimensions the first is the larger one, as in the original's checkpoints.
        dims = sorted((d for d in shape if d.name not in self._stacked), key=lambda d: -d.size)
        if not self._factored or len(dims) < 2 or dims[1].size < self._smallest:
            return None
        return dims[1], dims[0]


def adafactor_decay_rate_pow(exponent: float = 0.8, offset: int = 0) -> tf.Tensor:
    """Returns 1 - (step - offset + 1)^-exponent for TensorFlow's global step."""
    return _decay_pow(_step() - offset, exponent)


def adafactor_decay_rate_adam(beta2: float) -> tf.Tensor:
    """Returns beta2 with Adam's correction of the first steps, for TensorFlow's global step."""
    return _decay_adam(_step(), beta2)


def _decay_pow(step: tf.Tensor, exponent: float) -> tf.Tensor:
    return 1.0 - tf.pow(step + 1.0, -exponent)


def _decay_adam(step: tf.Tensor, beta2: float) -> tf.Tensor:
    return beta2 * (1.0 - tf.pow(beta2, step)) / (1.0 - tf.pow(beta2, step + 1.0))


def make_optimizer(hparams: Any, lr: Rate) -> Optimizer:
    """The optimizer of tensor2tensor's hyperparameters: `optimizer` is "SGD" or "Adafactor".

    Raises:
      UsageError: it is another one.
    """
    if hparams.optimizer == "SGD":
        return SgdOptimizer(lr)
    if hparams.optimizer == "Adafactor":
        return adafactor_optimizer_from_hparams(hparams, lr)
    raise UsageError(f'hparams.optimizer is "SGD" or "Adafactor", not {hparams.optimizer!r}')


def adafactor_optimizer_from_hparams(hparams: Any, lr: Rate) -> AdafactorOptimizer:
    """The `AdafactorOptimizer` of tensor2tensor's hyperparameters `optimizer_adafactor_*`.

    Raises:
      UsageError: `optimizer_adafactor_decay_type` is neither "pow" nor "Adam".
    """
    own = {
        name: getattr(hparams, f"optimizer_adafactor_{name}")
        for name in ("multiply_by_parameter_scale", "beta1", "clipping_threshold", "factored")
    }
    kind = hparams.optimizer_adafactor_decay_type
    if kind not in ("pow", "Adam"):
        raise UsageError(f'hparams.optimizer_adafactor_decay_type is "pow" or "Adam", not {kind!r}')

    def decay(step: tf.Tensor) -> tf.Tensor:
        if kind == "pow":
            return _decay_pow(step, hparams.optimizer_adafactor_memory_exponent)
        return _decay_adam(step, hparams.optimizer_adafactor_beta2)

    return AdafactorOptimizer(learning_rate=lr, decay_rate=decay, **own)


def reduce_rms(x: Tensor, **kwargs: Any) -> Tensor:
    """The root of the mean square, over the dimensions that `mtf.reduce_mean` takes."""
    return mtf.sqrt(mtf.reduce_mean(mtf.square(x), **kwargs))


def slot(var: Variable, name: str, shape: language.Shape, initializer: Callable[..., Any] | None = None) -> Tensor:
    """The state of an optimizer, [shape] float32: a variable that is not trained and starts with zeros."""
    start = initializer or tf.compat.v1.zeros_initializer()
    return get_variable(var.mesh, name, shape, tf.float32, initializer=start, trainable=False)


def _step_of(var: Variable) -> tf.Tensor:
    return graph_of(var.mesh).step_count.asked()


def _step() -> tf.Tensor:
    return tf.cast(tf.compat.v1.train.get_or_create_global_step(), tf.float32)
