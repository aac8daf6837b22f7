"""What every optimizer offers."""

from __future__ import annotations

import abc
import numbers
from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import GraphError


class Optimizer(abc.ABC):
    """Adds to a graph the assignments that lower a loss. A subclass says how one set of gradients is applied."""

    def minimize(self, loss: mtf.Tensor, variables: Sequence[mtf.Variable] | None = None) -> list[mtf.Tensor]:
        """Differentiates a scalar loss and applies the gradients.

        Args:
          loss: a scalar.
          variables: what to update; by default every trainable variable of the graph.

        Returns:
          The variables' new values, in the order of `variables`.

        Raises:
          GraphError: the loss is not a scalar, there is nothing to train, or it does not depend on some variable.
        """
        if loss.shape.ndims:
            raise GraphError(f"minimize needs a scalar loss, not {loss}; reduce it with mtf.reduce_mean or reduce_sum")
        chosen = list(loss.graph.trainable_variables if variables is None else variables)
        if not chosen:
            raise GraphError(f"minimize({loss.name}): the graph has no trainable variable")
        grads = mtf.gradients([loss], [variable.value for variable in chosen])
        unconnected = [variable.full_name for variable, grad in zip(chosen, grads, strict=True) if grad is None]
        if unconnected:
            raise GraphError(
                f"the loss {loss.name} does not depend on {', '.join(unconnected)}; "
                "leave what is not to be trained out with minimize(loss, variables=...)"
            )
        return self.apply_grads([grad for grad in grads if grad is not None], chosen)

    def _check_are_scalars(self, *names: str) -> None:
        """Refuses what a configuration file could hold there by mistake, such as text."""
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, numbers.Real | mtf.Tensor):
                kind = type(self).__name__
                raise ValueError(f"{kind}: {name} must be a number or a scalar of the program, and is {value!r}")

    @abc.abstractmethod
    def apply_grads(self, grads: Sequence[mtf.Tensor], variables: Sequence[mtf.Variable]) -> list[mtf.Tensor]:
        """Assigns to each variable its value after one step, and returns those values."""
