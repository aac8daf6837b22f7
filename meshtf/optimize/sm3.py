"""SM3: Adagrad, with its state stored as one vector for each dimension.

For a weight of [4096, 16384], Adagrad keeps 67 million sums of squared gradients. SM3 keeps 4,096 numbers for the rows
and 16,384 for the columns. Each is at least the sum of every element in its row or column, so the smaller of the two is
the tighter bound for the element where they cross:

    sums of Adagrad   1  2      rows 2, 6      bounds   min(2, 3) = 2   min(2, 6) = 2
                      3  6      columns 3, 6            min(6, 3) = 3   min(6, 6) = 6
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_fractions, check_kinds
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter, check_are_real
from meshtf.optimize.schedules.rates import rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates


@dataclasses.dataclass(frozen=True)
class Sm3Optimizer(Optimizer):
    """SM3-II (Anil, Gupta, Koren & Singer 2019, algorithm 2). Its cover has a set for each index of each dimension.

    With S_d the state along dimension d of a weight W, and G its gradient:

        V = min over d of S_d, + G^2
        S_d <- max of V along the other dimensions
        M <- momentum M + (1 - momentum) G / sqrt(V)
        W <- W - learning_rate * M

    The state of a variable w is in `w/sm3_m`, and in one variable for each dimension, such as `w/sm3_rows` for `rows`.
    If a dimension is called `m`, `w/sm3_m` is its state, and the mean M is in `w/sm3_mm`.
    A weight of one dimension has Adagrad's sums. Each layer of a stack counts as a weight of its own.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      momentum: decay of the mean of the directions, per step; 0 for none, and no state for it.
      epsilon: the least V in the formula of M.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "rows:4 columns:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> _ = mtf.optimize.Sm3Optimizer(0.1).minimize(loss)
      >>> list(mesh.graph.variables)
      ['w', 'w/sm3_rows', 'w/sm3_columns', 'w/sm3_m']
    """

    learning_rate: Rate
    momentum: float = 0.9
    epsilon: float = 1e-30

    def __post_init__(self) -> None:
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_fractions(self, "momentum")
        check_above_zero(self, "epsilon")

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        check_are_real(self, parameters)
        rate = rate_now(self.learning_rate, parameters[0].variable.mesh, "sm3")
        return [self._moved(p, p.scalar(rate)) for p in parameters]

    def _moved(self, parameter: Parameter, rate: mtf.Tensor) -> mtf.Tensor:
        second = self._second_moment(parameter)
        direction = parameter.grad * mtf.rsqrt(mtf.maximum(second, self.epsilon))
        if self.momentum:
            direction = parameter.moving_mean(_name_of_mean(parameter), self.momentum, direction)
        return parameter.value - direction * rate

    def _second_moment(self, parameter: Parameter) -> mtf.Tensor:
        """The bound on each element's sum of squares, with this step's. Stores its maxima along each dimension."""
        stacked = parameter.variable.stacked_dims
        own = [dim for dim in parameter.variable.shape if not stacked.has(dim.name)]
        if not own:
            whole = parameter.slot("sm3_whole")
            return mtf.assign(whole, whole + mtf.square(parameter.grad))
        kept = {dim.name: _slot_along(parameter, dim) for dim in own}
        second = functools.reduce(mtf.minimum, kept.values()) + mtf.square(parameter.grad)
        for before in kept.values():
            mtf.assign(before, mtf.reduce_max(second, output_shape=before.shape))
        return second


def _name_of_mean(parameter: Parameter) -> str:
    """The name of the mean of the directions. It is that of no dimension's state."""
    name = "m"
    while parameter.variable.shape.has(name):
        name += "m"
    return f"sm3_{name}"


def _slot_along(parameter: Parameter, dim: mtf.Dimension) -> mtf.Tensor:
    """The state along a dimension of a weight, with the dimensions of its stack."""
    variable = parameter.variable
    shape = mtf.Shape([d for d in variable.shape if d.name == dim.name or variable.stacked_dims.has(d.name)])
    return parameter.slot(f"sm3_{dim.name}", shape)
