"""The kernels and biases of convolution layers, and how their windows may be given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers.dense import check_not_whole
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer

OneOrEach: TypeAlias = "int | Sequence[int]"
"""One number for all spatial dimensions, or one for each, in order."""


def with_kernel(
    x: mtf.Tensor,
    output_dim: DimensionLike,
    spatial: Sequence[str],
    filter_size: OneOrEach,
    initializer: DenseInitializer | None,
    *,
    is_transposed: bool = False,
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """x and the variable `kernel`. The channels of x are renamed if the result's have their name."""
    check_not_whole(x)
    if x.shape.ndims <= len(spatial):
        raise ShapeError(f"[{x.shape}] must have {', '.join(spatial)} and channels, in this order, at its end")
    output = new_dimension(output_dim, x)
    if x.shape[-1].name == output.name:
        x = mtf.rename_dimension(x, output.name, f"_{output.name}")
    sizes = numbers(filter_size, len(spatial), "filter_size")
    window = mtf.Shape([(f"filter_{name}", size) for name, size in zip(spatial, sizes, strict=True)])
    inner, outer = mtf.Shape([x.shape[-1]]), mtf.Shape([output])
    shape = window + outer + inner if is_transposed else window + inner + outer
    fill = (initializer or VarianceScalingInitializer())(window + inner, window + outer)
    kernel = mtf.get_variable(x.mesh, "kernel", shape, initializer=fill)
    return x, mtf.cast(kernel, x.dtype)


def numbers(value: OneOrEach, count: int, what: str) -> list[int]:
    """The numbers of the spatial dimensions.

    Raises:
      ShapeError: there is not one for each, or one is not positive.
    """
    found = [value] * count if isinstance(value, int) else list(value) if isinstance(value, Collection) else []
    if len(found) != count or not all(isinstance(n, int) and n > 0 for n in found):
        raise ShapeError(
            f"{what} must be one positive integer, or {count}, one for each spatial dimension, and is {value!r}"
        )
    return found


def with_bias(y: mtf.Tensor) -> mtf.Tensor:
    """y plus the variable `bias`."""
    return y + mtf.cast(mtf.get_variable(y.mesh, "bias", y.shape[-1:], initializer=mtf.zeros), y.dtype)
