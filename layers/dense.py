"""The dense layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import meshtf as mtf
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer
from meshtf.sites import language_function

Dims: TypeAlias = "Iterable[mtf.Dimension]"


@language_function
def dense(
    x: mtf.Tensor,
    new_dims: Dims,
    reduced_dims: Dims | None = None,
    *,
    expert_dims: Dims | None = None,
    use_bias: bool = True,
    activation: Callable[[mtf.Tensor], mtf.Tensor] | None = None,
    kernel_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """activation(x . kernel + bias), summed over `reduced_dims`.

    A reduced dimension that bears the name of a new one is renamed with a leading underscore, in x and in the kernel,
    so that a layout rule for the name splits one side of the kernel and not both.

    Args:
      x: [..., expert_dims, reduced_dims].
      new_dims: dimensions of the result that take the place of `reduced_dims`.
      reduced_dims: dimensions of x; by default its last.
      expert_dims: dimensions of x along which every position has a kernel and a bias of its own.
      use_bias: whether a bias [expert_dims, new_dims], zero at first, is added.
      activation: applied to the result.
      kernel_initializer: by default truncated normals of variance 1 / (product of the reduced sizes).
      name: the scope of `kernel` and `bias`; by default "dense", made unique.

    Returns:
      [dimensions of x without reduced_dims, new_dims].
    """
    new = mtf.Shape(new_dims)
    experts = mtf.Shape(expert_dims or [])
    x, reduced = _without_clash(x, _dims_of(x, reduced_dims), new)
    initializer = (kernel_initializer or VarianceScalingInitializer())(reduced, new)
    with mtf.variable_scope(name, default_name="dense"):
        kernel = mtf.get_variable(x.mesh, "kernel", experts + reduced + new, initializer=initializer)
        y = mtf.einsum([x, mtf.cast(kernel, x.dtype)], output_shape=x.shape - reduced + new)
        if use_bias:
            bias = mtf.get_variable(x.mesh, "bias", experts + new, initializer=mtf.zeros)
            y += mtf.cast(bias, x.dtype)
        return activation(y) if activation is not None else y


def _dims_of(x: mtf.Tensor, reduced_dims: Dims | None) -> mtf.Shape:
    """The dimensions to be summed over, each checked to be one of x."""
    if reduced_dims is None:
        return x.shape[-1:]
    reduced = mtf.Shape(reduced_dims)
    for dim in reduced:
        x.shape.axis(dim)
    return reduced


def _without_clash(x: mtf.Tensor, reduced: mtf.Shape, new: mtf.Shape) -> tuple[mtf.Tensor, mtf.Shape]:
    """x and the reduced dimensions, with those renamed whose name a new dimension bears."""
    for dim in reduced:
        if new.has(dim.name):
            inner_name = f"_{dim.name}"
            x = mtf.rename_dimension(x, dim.name, inner_name)
            reduced = reduced.rename_dimension(dim.name, inner_name)
    return x, reduced
