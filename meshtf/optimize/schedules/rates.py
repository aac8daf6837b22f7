"""The step counter of an optimizer, and the rates that schedules compute from it."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.graph.blocks import PROGRAM
from meshtf.optimize.schedules.schedule import Rate, Schedule

_NO_RATE = "the {name} of this step must be a number or a scalar of the program, and is {rate}"


@dataclasses.dataclass(frozen=True, eq=False)
class Steps:
    """The step counter of one optimizer in a program.

    Attributes:
      scope: the optimizer's scope, in which the counter is called `step`.
      number: the number of this step, from 1 (float32 scalar).
    """

    scope: str
    number: mtf.Tensor

    def rate(self, rate: Rate, name: str = "learning_rate") -> mtf.Tensor:
        """A rate at this step (float32 scalar). It is also a summary and an export, called `<scope>/<name>`."""
        value = rate(self.number - 1.0) if isinstance(rate, Schedule) else rate
        return _known(value, self.number.mesh, self.scope, name)


def count_step(mesh: mtf.Mesh, scope: str) -> Steps:
    """Counts this step, in a variable `<scope>/step`, whatever scopes are open.

    Each optimizer of a program has a counter of its own: the second one with the same scope counts in `<scope>_1/step`.
    """
    with mesh.graph.root_scope(), mtf.variable_scope(default_name=scope) as unique:
        count = mtf.get_variable(mesh, "step", [], tf.int32, initializer=mtf.zeros, trainable=False)
    return Steps(unique, mtf.cast(mtf.assign_add(count, mtf.ones(mesh, [], tf.int32)), tf.float32))


def rate_now(rate: Rate, mesh: mtf.Mesh, scope: str, name: str = "learning_rate") -> mtf.Tensor:
    """A rate at this step, as from `Steps.rate`. It counts steps only if the rate is a schedule."""
    if isinstance(rate, Schedule):
        return count_step(mesh, scope).rate(rate, name)
    with mesh.graph.root_scope(), mtf.variable_scope(default_name=scope) as unique:
        return _known(rate, mesh, unique, name)


def _known(rate: float | mtf.Tensor, mesh: mtf.Mesh, scope: str, name: str) -> mtf.Tensor:
    if mesh.graph.place is not PROGRAM:
        raise GraphError(
            f"an optimizer is called inside {mesh.graph.place.what}, and updates variables only outside of all loops "
            f"and branches; return the gradients from there"
        )
    # Makes a tensor of a number. Otherwise a product with the number would be moved before a gradient's sum over cores,
    # away from the rest of the update.
    value = mtf.cast(rate, tf.float32) if isinstance(rate, mtf.Tensor) else mtf.constant(mesh, _number(rate, name))
    if value.shape.ndims:
        raise GraphError(_NO_RATE.format(name=name, rate=rate))
    with mesh.graph.root_scope(), mtf.variable_scope(scope):
        return mtf.scalar_summary(name, mtf.export(value, name))


def _number(rate: float, name: str) -> float:
    try:
        return float(rate)
    except (TypeError, ValueError):  # an own schedule may return anything
        raise GraphError(_NO_RATE.format(name=name, rate=rate)) from None
