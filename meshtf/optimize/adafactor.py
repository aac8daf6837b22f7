"""Adafactor: Adam's second moment, stored in the memory of a row and a column.

For a weight of [4096, 16384], Adam keeps 67 million means of squares. Adafactor keeps 4,096 means over the columns (R)
and 16,384 means over the rows (C). It estimates the mean at [i, j] by R[i] * C[j] / mean(R). This is exact if the
squares are a product of one factor per row and one factor per column:

    squares   1  2      R = 1.5, 4.5 (mean 3)      R C / mean(R)   1.5 * 2 / 3 = 1    1.5 * 4 / 3 = 2
              3  6      C = 2, 4                                   4.5 * 2 / 3 = 3    4.5 * 4 / 3 = 6
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_fractions, check_kinds
from meshtf.optimize.norms import mean_over, root_mean_square
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real
from meshtf.optimize.schedules.rates import Steps, count_step
from meshtf.optimize.schedules.schedule import Rate, check_rates

_SMALLEST_FACTORED = 128
_UNSCALED_SHARE = 0.05
"""The factor of Mesh-TensorFlow's default learning rate, if the size of the weights does not multiply the rate."""


@dataclasses.dataclass(frozen=True)
class AdafactorOptimizer(Optimizer):
    """Adafactor (Shazeer & Stern 2018, algorithms 4 and 5), which keeps the second moment as means of its rows and
    columns.

    With t the number of this step, from 1, b = 1 - t^-decay_exponent, and G the gradient of a weight W:

        R <- b R + (1 - b) mean of (G^2 + epsilon_1) along the columns
        C <- b C + (1 - b) mean of (G^2 + epsilon_1) along the rows
        U = G / sqrt(R C / mean(R))
        W <- W - max(epsilon_2, rms(W)) * learning_rate * U / max(1, rms(U) / clipping_threshold)

    A layer names the rows (dimensions that it sums over) and the columns (dimensions that it makes) in the argument
    `matrix` of `mtf.get_variable`. Attention's q [d_model, heads, d_kv] is a matrix with d_model rows. Dimensions in
    neither, such as experts, count matrices. Without `matrix`, the two largest dimensions are the matrix. In a stack of
    layers, every mean is taken per layer. A weight of one dimension keeps its whole second moment.

    The state of a variable w is in `w/adafactor_vr` (R) and `w/adafactor_vc` (C), or in `w/adafactor_v`. All variables
    share one counter, `adafactor/step`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule; by default min(0.01, 1 / sqrt(t)).
      multiply_by_parameter_scale: whether steps grow with the weights; if not, max(epsilon_2, rms(W)) is left out.
      decay_exponent: how fast the memory of the second moment grows with t.
      beta_1: decay of the mean of the updates in `w/adafactor_m`, per step; 0 for none, as published.
      clipping_threshold: the largest root mean square of U.
      factored: whether to keep the second moment as R and C; otherwise all weights keep it whole.
      epsilon_1: added to the squares of gradients.
      epsilon_2: the least root mean square that counts as the size of a weight.
      is_mesh_tensorflow_variant: whether to follow Mesh-TensorFlow where it departs from the paper. It does not
        factor matrices with fewer than 128 rows or columns. It takes the mean square of U over all layers of a stack
        together. Its default learning rate is 0.05 times the one above if `multiply_by_parameter_scale` is False.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.AdafactorOptimizer(0.01).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'adafactor/step', 'w/adafactor_v']
    """

    learning_rate: Rate | None = None
    multiply_by_parameter_scale: bool = True
    decay_exponent: float = 0.8
    beta_1: float = 0.0
    clipping_threshold: float = 1.0
    factored: bool = True
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3
    is_mesh_tensorflow_variant: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.learning_rate is not None:
            check_rates(self, "learning_rate")
        check_above_zero(self, "decay_exponent", "clipping_threshold", "epsilon_1", "epsilon_2")
        check_fractions(self, "beta_1")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        steps = count_step(parameters[0].variable.mesh, "adafactor")
        rate, decay = self._rate(steps), 1.0 - mtf.pow(steps.number, -float(self.decay_exponent))
        return [self._moved(p, p.scalar(rate), mtf.cast(decay, p.dtype)) for p in parameters]

    def _rate(self, steps: Steps) -> mtf.Tensor:
        if self.learning_rate is not None:
            return steps.rate(self.learning_rate)
        is_small = self.is_mesh_tensorflow_variant and not self.multiply_by_parameter_scale
        relative = mtf.minimum(mtf.rsqrt(steps.number), 0.01)
        return steps.rate(relative * _UNSCALED_SHARE if is_small else relative)

    def _moved(self, parameter: Parameter, rate: mtf.Tensor, decay: mtf.Tensor) -> mtf.Tensor:
        direction = self._direction(parameter, decay)
        # The paper clips each weight by itself. In a stack, each layer is a weight.
        size = root_mean_square(direction, parameter, per_layer=not self.is_mesh_tensorflow_variant)
        length = mtf.reciprocal(mtf.maximum(size * (1 / self.clipping_threshold), 1.0)) * rate
        if self.multiply_by_parameter_scale:
            length *= mtf.maximum(root_mean_square(parameter.value, parameter), self.epsilon_2)
        change = direction * length
        return parameter.value - (parameter.moving_mean("adafactor_m", self.beta_1, change) if self.beta_1 else change)

    def _direction(self, parameter: Parameter, decay: mtf.Tensor) -> mtf.Tensor:
        """The gradient divided by the root of the second moment, [parameter]."""
        squares = mtf.square(parameter.grad)
        if (dims := self.factored_dims(parameter.variable)) is None:
            return parameter.grad * mtf.rsqrt(self._moment(parameter, "adafactor_v", decay, squares))
        smaller, larger = dims
        rows = self._moment(parameter, "adafactor_vr", decay, mean_over(squares, larger, parameter))
        columns = self._moment(parameter, "adafactor_vc", decay, mean_over(squares, smaller, parameter))
        # Dividing the rows by their mean first keeps the product of two tiny moments within float32.
        relative_rows = rows / mean_over(rows, smaller, parameter)
        return parameter.grad * mtf.rsqrt(relative_rows) * mtf.rsqrt(columns)

    def _moment(self, parameter: Parameter, suffix: str, decay: mtf.Tensor, squares: mtf.Tensor) -> mtf.Tensor:
        return parameter.moving_mean(suffix, decay, squares + self.epsilon_1)

    def factored_dims(self, variable: mtf.Variable) -> tuple[mtf.Shape, mtf.Shape] | None:
        """The smaller and the larger side of a weight's matrix; None if its second moment is kept whole.

        Examples:
          >>> _ = mtf.get_variable(mesh, "w", "d_model:8 d_ff:32")
          >>> mtf.optimize.AdafactorOptimizer().factored_dims(mesh.graph.variables["w"])
          (Shape[d_model:8], Shape[d_ff:32])
        """
        sides = sorted(_sides(variable), key=lambda side: side.size)
        if not self.factored or not sides:
            return None
        if self.is_mesh_tensorflow_variant and sides[0].size < _SMALLEST_FACTORED:
            return None
        smaller, larger = (mtf.Shape([dim for dim in variable.shape if side.has(dim.name)]) for side in sides)
        return smaller, larger


def _sides(variable: mtf.Variable) -> list[mtf.Shape]:
    """Both sides of a weight's matrix, without padding; empty if the weight is not a matrix.

    The sides are those of the layer's `matrix`. Without it, they are the two largest dimensions, stacked ones excepted.
    """
    unpadded = variable.unpadded_shape
    if variable.spec.matrix is not None:
        sides = [mtf.Shape([dim for dim in unpadded if dim.name in names]) for names in variable.spec.matrix]
        return sides if all(side.dims for side in sides) else []
    own = sorted((dim for dim in unpadded if not variable.stacked_dims.has(dim.name)), key=lambda dim: dim.size)
    return [mtf.Shape([dim]) for dim in own[-2:]] if len(own) > 1 else []
