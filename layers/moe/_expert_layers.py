"""The feed-forward layers of the experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import meshtf as mtf
from meshtf.layers.activations import Activation, activation_function
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer
from meshtf.layers.moe._slots import SLOTS
from meshtf.layers.transformer.dropout import dropped

Product = Callable[[mtf.Tensor, mtf.Tensor], mtf.Tensor]
"""Multiplies slots [.., in] by a kernel [.., experts, in, out]: each slot by its expert's part."""


@dataclasses.dataclass(frozen=True)
class ExpertLayers:
    """wo · dropout(activation(wi · x)), with weights of its own for each expert.

    Attributes:
      experts: the dimension of the kernels.
      d_ff: the dimension between the two products.
      activations: names or functions; the results of several are multiplied, as in `FeedForward`.
      use_bias: whether all products add biases.
      dropout_rate: the share that is dropped between the products.
      kernel_initializer: the initializer of all kernels.
    """

    experts: mtf.Dimension
    d_ff: mtf.Dimension
    activations: Sequence[Activation]
    use_bias: bool = False
    dropout_rate: float = 0.0
    kernel_initializer: DenseInitializer | None = None

    def by_experts(self, x: mtf.Tensor, *, is_training: bool) -> mtf.Tensor:
        """Applies the layers to slots of equal number per expert: [.., groups, experts, capacity, d_model] -> the same
        shape.
        """

        def product(slots: mtf.Tensor, kernel: mtf.Tensor) -> mtf.Tensor:
            return mtf.einsum([slots, kernel], output_shape=slots.shape[:-1] + kernel.shape[-1:])

        return self._applied(x, product, is_training=is_training)

    def by_sizes(self, x: mtf.Tensor, sizes: mtf.Tensor, *, is_training: bool) -> mtf.Tensor:
        """Applies the layers to slots of different numbers per expert: [.., group, slots, d_model] -> the same shape.

        `sizes`, int32 [.., group, _experts], counts the slots of each expert, which follow one another. Slots behind
        the last expert's give zeros.
        """

        def product(slots: mtf.Tensor, kernel: mtf.Tensor) -> mtf.Tensor:
            return mtf.grouped_matmul(slots, kernel, sizes, SLOTS, self.experts)

        return self._applied(x, product, is_training=is_training)

    def _applied(self, x: mtf.Tensor, product: Product, *, is_training: bool) -> mtf.Tensor:
        d_model, several = x.shape[-1], len(self.activations) > 1
        h = None
        for number, activation in enumerate(self.activations):
            y = self._layer(x, f"wi_{number}" if several else "wi", self.d_ff, product)
            factor = activation_function(activation)(y)
            h = factor if h is None else h * factor
        assert h is not None
        h = dropped(h, self.dropout_rate, (), is_training=is_training)
        return self._layer(h, "wo", d_model, product)

    def _layer(self, x: mtf.Tensor, name: str, new: mtf.Dimension, product: Product) -> mtf.Tensor:
        """x through the matrix of each slot's expert, and its bias."""
        kernel_initializer = self.kernel_initializer or VarianceScalingInitializer()
        matrix = mtf.Shape([x.shape[-1]]), mtf.Shape([new])
        initializer, shape = kernel_initializer(*matrix), [self.experts, x.shape[-1], new]
        with mtf.variable_scope(name):
            kernel = mtf.get_variable(x.mesh, "kernel", shape, initializer=initializer, matrix=matrix)
            y = product(x, kernel.astype(x.dtype))
            if not self.use_bias:
                return y
            bias = mtf.get_variable(x.mesh, "bias", [self.experts, new], initializer=mtf.zeros)
        # As a product with ones, each slot finds its expert's bias in the way in which it finds the kernel.
        one = mtf.Dimension("one", 1)
        # The bias, like the kernel, may have dimensions along which layers differ, before the experts.
        column = mtf.broadcast(bias.astype(x.dtype), [*bias.shape[:-1], one, new])
        return y + product(mtf.ones(x.mesh, x.shape[:-1] + [one], x.dtype), column)
