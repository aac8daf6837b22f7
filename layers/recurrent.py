"""Recurrent layers over a sequence: GRU, LSTM, and either in both directions.

The inputs of all steps are multiplied at once, before the loop. A step multiplies only the state, whose dimension then
has a leading underscore in its name, as in `dense`, so that a layout rule splits one side of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers.dense import check_not_whole, dense
from meshtf.layers.initializers import DenseInitializer, Initializer, VarianceScalingInitializer

Layer: TypeAlias = "Callable[..., tuple[mtf.Tensor, Any]]"
"""`gru`, `lstm`, or a function that takes and returns the same."""

LstmState: TypeAlias = "tuple[mtf.Tensor, mtf.Tensor]"
"""The output of the last step, and its cell."""

_Step: TypeAlias = "Callable[[list[mtf.Tensor], mtf.Tensor], list[mtf.Tensor]]"


@language_function
def gru(
    x: mtf.Tensor,
    hidden_dim: DimensionLike,
    length_dim: DimensionLike | None = None,
    *,
    initial_state: mtf.Tensor | None = None,
    reverse: bool = False,
    kernel_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """A gated recurrent unit over a sequence (Cho et al. 2014), with the reset gate after the product.

    With z and r as the update and the reset gate, each step gives z · h + (1 - z) · tanh(W x + b + r · (U h + c)).

    Args:
      x: [..., length, d_in], floating.
      hidden_dim: the dimension of the state and of the results.
      length_dim: the dimension of the steps, or its name; by default x's last but one.
      initial_state: [..., hidden_dim]; by default zeros.
      reverse: whether the last step comes first. Results stay at their places.
      kernel_initializer: the initializer of both kernels; by default as in `dense`.
      name: the scope of the kernels and biases; by default "gru", made unique.

    Returns:
      The results of all steps, [..., length, hidden_dim], and the state after the last one, [..., hidden_dim].

    Raises:
      ShapeError: x has too few dimensions, or lacks the one of the steps.
      DtypeError: x is of integers.

    Examples:
      >>> text = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> outputs, state = mtf.layers.gru(text, "hidden:5")
      >>> outputs.shape, state.shape
      (Shape[batch:4 length:16 hidden:5], Shape[batch:4 hidden:5])
    """
    sequence = _Sequence(x, hidden_dim, length_dim, mtf.Dimension("gates", 3), kernel_initializer)
    with mtf.variable_scope(name, default_name="gru"):
        inputs = sequence.inputs(mtf.zeros)
        of_state = sequence.product_of_state(use_bias=True)

    def step(carried: list[mtf.Tensor], part: mtf.Tensor) -> list[mtf.Tensor]:
        (h,) = carried
        update, reset, new = mtf.unstack(part, sequence.gates)
        own_update, own_reset, own_new = mtf.unstack(of_state(h), sequence.gates)
        z, r = mtf.sigmoid(update + own_update), mtf.sigmoid(reset + own_reset)
        return [z * h + (1.0 - z) * mtf.tanh(new + r * own_new)]

    outputs, (state,) = sequence.scan(step, inputs, [initial_state], reverse=reverse, name="gru")
    return outputs, state


@language_function
def lstm(
    x: mtf.Tensor,
    hidden_dim: DimensionLike,
    length_dim: DimensionLike | None = None,
    *,
    initial_state: LstmState | None = None,
    reverse: bool = False,
    kernel_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> tuple[mtf.Tensor, LstmState]:
    """A long short-term memory over a sequence (Hochreiter & Schmidhuber 1997; the forget gate is of Gers et al. 2000).

    With i, f and o as the gates, each step's cell is f · c + i · tanh(W x + U h + b), and its result o · tanh(cell).
    The bias of the forget gate starts at 1.

    Args:
      x: [..., length, d_in], floating.
      hidden_dim: the dimension of the state and of the results.
      length_dim: the dimension of the steps, or its name; by default x's last but one.
      initial_state: the result and the cell before the first step, each [..., hidden_dim]; by default zeros.
      reverse: whether the last step comes first. Results stay at their places.
      kernel_initializer: the initializer of both kernels; by default as in `dense`.
      name: the scope of the kernels and the bias; by default "lstm", made unique.

    Returns:
      The results of all steps, [..., length, hidden_dim], and the state after the last one: its result and its cell.

    Raises:
      ShapeError: x has too few dimensions, or lacks the one of the steps.
      DtypeError: x is of integers.

    Examples:
      >>> text = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> outputs, (result, cell) = mtf.layers.lstm(text, "hidden:5")
      >>> outputs.shape, cell.shape
      (Shape[batch:4 length:16 hidden:5], Shape[batch:4 hidden:5])
    """
    sequence = _Sequence(x, hidden_dim, length_dim, mtf.Dimension("gates", 4), kernel_initializer)
    with mtf.variable_scope(name, default_name="lstm"):
        inputs = sequence.inputs(_open_forget_gate)
        of_state = sequence.product_of_state(use_bias=False)

    def step(carried: list[mtf.Tensor], part: mtf.Tensor) -> list[mtf.Tensor]:
        h, cell = carried
        i, f, new, o = mtf.unstack(part + of_state(h), sequence.gates)
        cell = mtf.sigmoid(f) * cell + mtf.sigmoid(i) * mtf.tanh(new)
        return [mtf.sigmoid(o) * mtf.tanh(cell), cell]

    start = [None, None] if initial_state is None else list(initial_state)
    outputs, (state, cell) = sequence.scan(step, inputs, start, reverse=reverse, name="lstm")
    return outputs, (state, cell)


@language_function
def bidirectional(
    layer: Layer,
    x: mtf.Tensor,
    hidden_dim: DimensionLike,
    length_dim: DimensionLike | None = None,
    *,
    kernel_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> tuple[mtf.Tensor, tuple[Any, Any]]:
    """Two recurrent layers over a sequence, one from each end, their results side by side (Schuster & Paliwal 1997).

    Args:
      layer: `gru` or `lstm`.
      x: [..., length, d_in], floating.
      hidden_dim: the dimension of each layer's state.
      length_dim: the dimension of the steps, or its name; by default x's last but one.
      kernel_initializer: the initializer of all kernels; by default as in `dense`.
      name: the scope of `forward` and `backward`; by default "bidirectional", made unique.

    Returns:
      The results, [..., length, 2 · hidden_dim] under the name of `hidden_dim`, and the two last states.

    Raises:
      ShapeError: x has too few dimensions, or lacks the one of the steps.
      DtypeError: x is of integers.

    Examples:
      >>> text = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> outputs, states = mtf.layers.bidirectional(mtf.layers.gru, text, "hidden:5")
      >>> outputs.shape
      Shape[batch:4 length:16 hidden:10]
    """
    both = {"kernel_initializer": kernel_initializer}
    with mtf.variable_scope(name, default_name="bidirectional"):
        there, last = layer(x, hidden_dim, length_dim, name="forward", **both)
        back, first = layer(x, hidden_dim, length_dim, name="backward", reverse=True, **both)
    return mtf.concat([there, back], there.shape[-1].name), (last, first)


class _Sequence:
    """A sequence on its way through a recurrent layer: its dimensions by their roles, and its products."""

    def __init__(
        self,
        x: mtf.Tensor,
        hidden: DimensionLike,
        length: DimensionLike | None,
        gates: mtf.Dimension,
        initializer: DenseInitializer | None,
    ) -> None:
        check_not_whole(x)
        if x.shape.ndims < 2:
            raise ShapeError(f"[{x.shape}] must have a length and features, in this order, at its end")
        self._x, self._hidden, self.gates = x, new_dimension(hidden, x), gates
        self._length = x.shape[-2] if length is None else x.shape[x.shape.axis(length)]
        self._initializer = initializer or VarianceScalingInitializer()
        self._state = x.shape - [self._length, x.shape[-1]] + [self._hidden]

    def inputs(self, bias_initializer: Initializer) -> mtf.Tensor:
        """The products of all inputs with the variable `input/kernel`, plus `bias`: [..., length, gates, hidden]."""
        y = dense(
            self._x,
            [self.gates, self._hidden],
            self._x.shape[-1:],
            use_bias=False,
            kernel_initializer=self._initializer,
            name="input",
        )
        return y + self._bias("bias", bias_initializer)

    def product_of_state(self, *, use_bias: bool) -> Callable[[mtf.Tensor], mtf.Tensor]:
        """A function that multiplies the state with the variable `recurrent_kernel`, and perhaps adds a bias."""
        inner = mtf.Dimension(f"_{self._hidden.name}", self._hidden.size)
        roles = mtf.Shape([inner]), mtf.Shape([self.gates, self._hidden])
        kernel = mtf.get_variable(
            self._x.mesh, "recurrent_kernel", roles[0] + roles[1], initializer=self._initializer(*roles), matrix=roles
        )
        kernel = kernel.astype(self._x.dtype)
        bias = self._bias("recurrent_bias", mtf.zeros) if use_bias else None
        shape = self._state - [self._hidden] + [self.gates, self._hidden]

        def product(state: mtf.Tensor) -> mtf.Tensor:
            renamed = state.rename({self._hidden.name: inner.name})
            y = mtf.einsum([renamed, kernel], output_shape=shape)
            return y if bias is None else y + bias

        return product

    def scan(
        self, step: _Step, inputs: mtf.Tensor, start: Sequence[mtf.Tensor | None], *, reverse: bool, name: str
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """The first carried tensor after each step, [..., length, hidden], and all of them after the last step."""
        zeros = mtf.zeros(self._x.mesh, self._state, self._x.dtype)
        carried = [zeros if x is None else x.transpose(self._state) for x in start]

        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            carried = step(carried, parts[0])
            return carried, carried[:1]

        last, (results,) = mtf.scan(body, carried, inputs, self._length, reverse=reverse, name=name)
        return results.transpose(self._x.shape[:-1] + [self._hidden]), last

    def _bias(self, name: str, initializer: Initializer) -> mtf.Tensor:
        bias = mtf.get_variable(self._x.mesh, name, [self.gates, self._hidden], initializer=initializer)
        return bias.astype(self._x.dtype)


def _open_forget_gate(mesh: mtf.Mesh, shape: mtf.Shape, dtype: tf.DType) -> mtf.Tensor:
    """1 for the second gate, else 0, so that a new network remembers (Jozefowicz et al. 2015)."""
    is_second = mtf.equal(mtf.range(mesh, shape[0]), 1)
    return mtf.broadcast(is_second, shape).astype(dtype)
