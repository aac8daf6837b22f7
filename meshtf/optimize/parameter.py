"""A variable during its update, with the state that an optimizer keeps for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError


@dataclasses.dataclass(frozen=True, eq=False)
class Parameter:
    """A variable to be updated, with its value and gradient.

    Attributes:
      variable: the variable, from which to read its name, its stacked dimensions and its unpadded shape.
      value: [variable.shape], the weight before the update, in its stored dtype, or float32 if that is narrower.
      grad: [variable.shape], of the dtype of `value`.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> parameter = mtf.optimize.Parameter.of(mesh.graph.variables["w"], 2.0 * w)
      >>> parameter.name, parameter.value.shape, parameter.grad.shape
      ('w', Shape[hidden:8], Shape[hidden:8])
    """

    variable: mtf.Variable
    value: mtf.Tensor
    grad: mtf.Tensor

    @classmethod
    def of(cls, variable: mtf.Variable, grad: mtf.Tensor) -> Parameter:
        """The variable, read at this point of the program, with its gradient."""
        dtype = variable.slice_dtype
        if dtype.is_floating and dtype.size < tf.float32.size:
            dtype = tf.float32
        value = mtf.cast(mtf.read_variable(variable, variable.slice_dtype), dtype)
        return cls(variable, value, mtf.cast(grad, dtype))

    @property
    def name(self) -> str:
        return self.variable.full_name

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the arithmetic, and of the optimizer's state."""
        return self.value.dtype

    def scalar(self, x: mtf.Tensor) -> mtf.Tensor:
        """A scalar of the program in the dtype of the arithmetic."""
        return mtf.cast(x, self.dtype)

    def slot(self, suffix: str, shape: mtf.Shape | None = None) -> mtf.Tensor:
        """State of the optimizer that belongs to the variable: `<name>/<suffix>`, zero at first, of `dtype`.

        Args:
          suffix: the name of the state.
          shape: dimensions of the variable, including all stacked ones; by default the variable's shape.

        Raises:
          GraphError: the program has updated the state already, so that this update would replace the first one.
        """
        state = mtf.like_variable(self.variable, suffix, shape, self.dtype)
        if isinstance(state.operation, mtf.Variable) and state.operation.is_assigned:
            raise GraphError(
                f"{self.name} is updated twice in this program, and {state.name} would keep only the second update; "
                f"add the gradients, and apply their sum once"
            )
        return state

    def moving_mean(self, suffix: str, decay: float | mtf.Tensor, value: mtf.Tensor) -> mtf.Tensor:
        """decay * slot + (1 - decay) * value, which is the slot's value from this step on.

        Args:
          suffix: the name of the slot.
          decay: a number, or a scalar of the program.
          value: a tensor over dimensions of the variable, including all stacked ones.
        """
        before = self.slot(suffix, mtf.Shape([dim for dim in self.variable.shape if value.shape.has(dim.name)]))
        return mtf.assign(before, before + (value - before) * (1 - decay))


def check_are_real(owner: object, parameters: Sequence[Parameter]) -> None:
    """Checks that weights are real, because update rules use squares and signs of real numbers.

    Raises:
      DtypeError: one is complex.
    """
    for parameter in parameters:
        if parameter.value.dtype.is_complex:
            raise DtypeError(
                f"{type(owner).__name__} updates real weights, and {parameter.name} is {parameter.value.dtype.name}; "
                f"give it to SgdOptimizer or MomentumOptimizer, in ParameterGroups"
            )
