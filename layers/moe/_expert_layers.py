"""The feed-forward layers of the experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import meshtf as mtf
from meshtf.layers.activations import activation_function
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer
from meshtf.layers.moe._slots import SLOTS
from meshtf.layers.transformer.dropout import dropped

Product = Callable[[mtf.Tensor, mtf.Tensor], mtf.Tensor]
"""Multiplies slots [.., in] by a kernel [.., experts, in, out]: each slot by its expert's part."""


@dataclasses.dataclass(frozen=True)
class ExpertLayers:
    """wo · dropout(activation(wi · x)), with weights of its own for each expert and no biases.

    Attributes:
      experts: the dimension of the kernels.
      d_ff: the dimension between the two products.
      activations: names; the results of several are multiplied, as in `FeedForward`.
      dropout_rate: the share that is dropped between the products.
      kernel_initializer: the initializer of all kernels.
    """

    experts: mtf.Dimension
    d_ff: mtf.Dimension
    activations: Sequence[str]
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
        for number, name in enumerate(self.activations):
            kernel = self._kernel(x, f"wi_{number}" if several else "wi", d_model, self.d_ff)
            factor = activation_function(name)(product(x, kernel))
            h = factor if h is None else h * factor
        assert h is not None
        h = dropped(h, self.dropout_rate, (), is_training=is_training)
        return product(h, self._kernel(x, "wo", self.d_ff, d_model))

    def _kernel(self, x: mtf.Tensor, name: str, reduced: mtf.Dimension, new: mtf.Dimension) -> mtf.Tensor:
        kernel_initializer = self.kernel_initializer or VarianceScalingInitializer()
        matrix = mtf.Shape([reduced]), mtf.Shape([new])
        initializer, shape = kernel_initializer(*matrix), [self.experts, reduced, new]
        with mtf.variable_scope(name):
            kernel = mtf.get_variable(x.mesh, "kernel", shape, initializer=initializer, matrix=matrix)
        return mtf.cast(kernel, x.dtype)
