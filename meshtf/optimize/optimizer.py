"""The base of all optimizers."""

from __future__ import annotations

import abc
import collections
from collections.abc import Iterable, Sequence

import meshtf as mtf
from meshtf.call_sites import says_where
from meshtf.errors import GraphError, ShapeError, counted
from meshtf.graph.tensor import check_tensor
from meshtf.ops.algebra.casting import before_cast
from meshtf.ops.variables.variable import variable_of
from meshtf.optimize._named_updates import name_updates
from meshtf.optimize.parameter import Parameter


class Optimizer(abc.ABC):
    """Adds to a graph the assignments that lower a loss. A subclass computes the new weights in `update`.

    Examples:
      >>> class SignDescent(mtf.optimize.Optimizer):
      ...     def update(self, parameters):
      ...         return [p.value - 0.01 * mtf.sign(p.grad) for p in parameters]
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> SignDescent().minimize(mtf.reduce_sum(mtf.square(w)))
      [assign [hidden:8] float32]
    """

    @says_where
    def minimize(
        self, loss: mtf.Tensor, variables: Sequence[mtf.Variable | mtf.Tensor] | None = None
    ) -> list[mtf.Tensor]:
        """Differentiates a scalar loss and applies the gradients.

        Args:
          loss: a scalar.
          variables: the variables to update, or the tensors that `mtf.get_variable` returned for them; by default
            every trainable variable of the graph.

        Returns:
          The variables' new values, in the order of `variables`.

        Raises:
          GraphError: the loss is not a scalar, there is nothing to train, it does not depend on some variable, or
            `variables` holds something else.
        """
        if not isinstance(loss, mtf.Tensor):
            raise GraphError(f"minimize needs the loss, a scalar mtf.Tensor, not {type(loss).__name__}")
        if loss.shape.ndims:
            raise GraphError(f"minimize needs a scalar loss, not {loss}; reduce it with mtf.reduce_mean or reduce_sum")
        chosen = list(loss.graph.trainable_variables) if variables is None else [variable_of(v) for v in variables]
        if not chosen:
            why = "the graph has no trainable variable" if variables is None else "variables is empty"
            raise GraphError(f"minimize({loss.name}): {why}")
        grads = mtf.gradients([loss], [variable.value for variable in chosen])
        unconnected = [variable.full_name for variable, grad in zip(chosen, grads, strict=True) if grad is None]
        if unconnected:
            raise GraphError(
                f"the loss {loss.name} does not depend on {', '.join(unconnected)}; "
                "name the variables to train: minimize(loss, variables=...)"
            )
        return self.apply_grads([grad for grad in grads if grad is not None], chosen)

    @says_where
    def apply_grads(
        self, grads: Sequence[mtf.Tensor], variables: Sequence[mtf.Variable | mtf.Tensor]
    ) -> list[mtf.Tensor]:
        """Assigns to each variable its value after one step, and returns those values.

        Args:
          grads: the gradient of each variable, with the variable's dimensions in any order.
          variables: the variables, or the tensors that `mtf.get_variable` returned for them.

        Raises:
          GraphError: there are more gradients than variables or fewer, or none, or something is neither; or a variable
            is given twice; or the optimizer keeps state for a variable, and has updated it before in this program; or
            `update` returns no value for a weight.
          ShapeError: a gradient does not have its variable's dimensions.
        """
        if len(grads) != len(variables):
            raise GraphError(
                f"{counted(len(grads), 'gradient')} given for {counted(len(variables), 'variable')}; give one for each"
            )
        chosen = [variable_of(v) for v in variables]
        _check_are_distinct(chosen)
        operations = chosen[0].graph.operations
        before = len(operations)
        parameters = [
            Parameter.of(variable, _fitting(grad, variable)) for grad, variable in zip(grads, chosen, strict=True)
        ]
        values = [
            parameter.variable.value if new is parameter.value else _assigned(parameter.variable, new)
            for parameter, new in zip(parameters, self._new_weights(parameters), strict=True)
        ]
        name_updates(operations[before:], parameters)
        return values

    def _new_weights(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        returned = self.update(parameters)
        what = f"{type(self).__name__}.update must return a list with the new value of each weight"
        if not isinstance(returned, Iterable) or isinstance(returned, mtf.Tensor):
            raise GraphError(f"{what}, not {type(returned).__name__}")
        found = list(returned)
        if len(found) != len(parameters):
            raise GraphError(f"{what}: it returned {len(found)} for {counted(len(parameters), 'weight')}")
        return [check_tensor(new, f"new value of {p.name}") for p, new in zip(parameters, found, strict=True)]

    @abc.abstractmethod
    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        """The weights after one step, each with the shape and dtype of its `parameter.value`.

        For a weight that does not change, return `parameter.value` itself. The method may assign the optimizer's own
        state, and nothing else.
        """


def _check_are_distinct(variables: Sequence[mtf.Variable]) -> None:
    """Checks that there are variables, each once: two updates of one would both start from its value before the step.

    Raises:
      GraphError: there are none, or one is given twice.
    """
    if not variables:
        raise GraphError("apply_grads has no gradients and no variables; give one of each, or more")
    counts = collections.Counter(variable.full_name for variable in variables)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise GraphError(
            f"{', '.join(twice)} would be updated twice in one step; add the gradients, and give each variable once"
        )


def _fitting(grad: mtf.Tensor, variable: mtf.Variable) -> mtf.Tensor:
    """The gradient in the order of the variable's dimensions. Other dimensions would be broadcast unnoticed."""
    shape = check_tensor(grad, "gradient").shape
    if {*shape} != {*variable.shape}:
        raise ShapeError(
            f'the gradient of variable "{variable.full_name}" [{variable.shape}] must have its dimensions, and '
            f"{grad.name} is [{shape}]"
        )
    return grad if shape == variable.shape else mtf.transpose(grad, variable.shape)


def _assigned(variable: mtf.Variable, new: mtf.Tensor) -> mtf.Tensor:
    # A table that is updated as it is stored is wider only for other optimizers, and is not cast there and back.
    stored = before_cast(new)
    is_exact = stored.dtype == variable.slice_dtype and stored.dtype.size < new.dtype.size
    return mtf.assign(variable, stored if is_exact else mtf.cast(new, variable.slice_dtype))
