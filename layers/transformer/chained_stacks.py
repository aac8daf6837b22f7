"""Stacks one after the other, for layers that are not all alike."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_kinds
from meshtf.layers.transformer.context import Context, DecodingSpace
from meshtf.layers.transformer.observations import Observations
from meshtf.layers.transformer.stack import TransformerStack

Run = Callable[[TransformerStack, mtf.Tensor, list[mtf.Tensor]], tuple[mtf.Tensor, list[mtf.Tensor]]]


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ChainedStacks:
    """Applies stacks one after the other, for example a repeated pattern of layers and the remaining layers.

    The variables of the first stack are in the scope `stack_0`, and so on. The chain ends with the final norm of its
    last stack, if it has one, in the scope `final` next to them. The other stacks' final norms are left out.

    Attributes:
      stacks: the stacks, in order.
    """

    stacks: Sequence[TransformerStack]

    def __post_init__(self) -> None:
        if not self.stacks or not all(isinstance(stack, TransformerStack) for stack in self.stacks):
            raise ValueError(
                f"ChainedStacks: stacks must be a list of one TransformerStack or more, and is {self.stacks!r}; in gin "
                f"@TransformerStack() makes one, parentheses included"
            )
        check_kinds(self)

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        """[.., length, d_model] -> the same shape."""
        return self.observed(x, context)[0]

    def observed(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Observations]:
        """The result of a call, and the sublayers' observations."""
        told = Observations()
        for scope, stack in self._scoped:
            with mtf.variable_scope(scope):
                x, own = stack.observed(x, context)
            told |= own.under(scope)
        return self.stacks[-1].ended(x, context), told

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """The result of a call, and the state from which decoding continues: the states of all stacks in order."""
        return self._in_turn(x, context, [], lambda stack, y, own: stack.fill(y, context))

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        """The state in which decoding starts."""
        state = []
        for scope, stack in self._scoped:
            with mtf.variable_scope(scope):
                state += stack.start(space, context)
        return state

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Makes a step of one token of each sequence: [.., d_model] -> the same shape, and the new state.

        See `Sublayer.step`.
        """
        return self._in_turn(x, context, state, lambda stack, y, own: stack.step(y, context, position, own))

    def _in_turn(
        self, x: mtf.Tensor, context: Context, state: list[mtf.Tensor], run: Run
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Runs each stack with its part of the state. Returns the result and the new states."""
        waiting, states = iter(state), []
        for scope, stack in self._scoped:
            own = list(itertools.islice(waiting, sum(sublayer.num_states for sublayer in stack.sublayers)))
            with mtf.variable_scope(scope):
                x, new = run(stack, x, own)
            states += new
        return self.stacks[-1].ended(x, context), states

    @property
    def _scoped(self) -> list[tuple[str, TransformerStack]]:
        """The scopes of the stacks, and the stacks without their final norms."""
        return [
            (f"stack_{number}", dataclasses.replace(stack, use_final_norm=False))
            for number, stack in enumerate(self.stacks)
        ]
