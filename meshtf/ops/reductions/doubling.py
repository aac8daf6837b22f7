"""Running results of any associative function by doubling (Hillis and Steele 1986).

In doubling, step k combines each element's result with the one 2^k before it. Three steps are enough for 8 elements.
If the dimension is split, only what crosses a border is sent. The gradient is the gradient of these steps. Nothing is
divided, so zeros in a product need no special case.
"""

from __future__ import annotations

from collections.abc import Callable

from meshtf.dimension import Dimension
from meshtf.graph.tensor import Tensor
from meshtf.ops.elementwise.comparisons import greater_equal, less
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import range
from meshtf.ops.windows.shift import shift


def before(
    x: Tensor, dim: Dimension, combine: Callable[[Tensor, Tensor], Tensor], neutral: float, *, reverse: bool = False
) -> Tensor:
    """The combination of the elements before each one along a dimension; of the elements after it with `reverse`."""
    return _doubled(_moved(x, dim, neutral, -1 if reverse else 1), dim, dim.size - 1, combine, neutral, reverse=reverse)


def up_to(
    x: Tensor, dim: Dimension, combine: Callable[[Tensor, Tensor], Tensor], neutral: float, *, reverse: bool = False
) -> Tensor:
    """The combination of the elements up to each one, itself included; of those from it on with `reverse`."""
    return _doubled(x, dim, dim.size, combine, neutral, reverse=reverse)


def _doubled(
    y: Tensor,
    dim: Dimension,
    reach: int,
    combine: Callable[[Tensor, Tensor], Tensor],
    neutral: float,
    *,
    reverse: bool,
) -> Tensor:
    """The combination of each element with those before it, `reach` of them at most."""
    step = 1
    while step < reach:
        y = combine(y, _moved(y, dim, neutral, -step if reverse else step))
        step *= 2
    return y


def _moved(x: Tensor, dim: Dimension, neutral: float, offset: int) -> Tensor:
    """x moved along a dimension. Neutral elements fill the places that become free."""
    position = range(x.mesh, dim)
    has_source = greater_equal(position, offset) if offset > 0 else less(position, dim.size + offset)
    return where(has_source, shift(x, offset, dim, wrap=False), neutral, output_shape=x.shape)
