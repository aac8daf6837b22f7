"""Correlations, means of groups, noise, and clipped gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.graph.tensor import Tensor


def corr(x: Tensor, dim: Dimension, epsilon: float = 1e-20, name: str = "pearson_correlation") -> Tensor:
    """Returns the correlations between elements along a dimension, over all other dimensions, [<dim>_1, <dim>_2]."""
    centred = x - mtf.reduce_mean(x, output_shape=[dim])
    deviation = mtf.sqrt(mtf.reduce_sum(mtf.square(centred), output_shape=[dim])) + epsilon
    unit = centred / deviation
    both = [mtf.rename_dimension(unit, dim.name, f"{dim.name}_{i}") for i in (1, 2)]
    return mtf.einsum(both, Shape([Dimension(f"{dim.name}_{i}", dim.size) for i in (1, 2)]))


def compress_mean(x: Tensor, dim: language.Dimension, compression_factor: int) -> Tensor:
    """The mean of each `compression_factor` neighbours along a dimension."""
    return mtf.pool_tensor_1d(x, dim, mtf.reduce_mean, compression_factor)


def multiplicative_jitter(x: Tensor, epsilon: float = 1e-2) -> Tensor:
    """Multiplies x by random numbers between 1 - epsilon and 1 + epsilon."""
    if epsilon == 0:
        return x
    return x * mtf.random_uniform(x.mesh, x.shape, x.dtype, 1.0 - epsilon, 1.0 + epsilon)


def clip_activation_gradient(x: Tensor, clip_rms_norm: float | None = None) -> Tensor:
    """Returns x. If the root mean square of its gradient exceeds `clip_rms_norm`, the gradient is scaled down to it."""

    def grad_fn(output_grads: Sequence[Tensor], **_: Any) -> list[Tensor]:
        if not clip_rms_norm:
            return list(output_grads)
        sizes = [mtf.sqrt(mtf.reduce_mean(mtf.square(g))) for g in output_grads]
        return [g / mtf.maximum(n / clip_rms_norm, 1.0) for g, n in zip(output_grads, sizes, strict=True)]

    return mtf.custom_gradient(mtf.identity, grad_fn, [x])


def us_einsum(xs: Sequence[Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Calls `mtf.einsum`. The unit scaling convention, which gin turned on, does not exist here."""
    return mtf.einsum(xs, *args, **kwargs)


def unit_scaling_convention(value: bool = False) -> bool:
    """Whether contractions are divided by the square root of the size that they sum over. Here it is always false."""
    return False
