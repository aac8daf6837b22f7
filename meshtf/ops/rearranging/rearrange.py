"""Splits, merges, transposes and repeats dimensions by a pattern."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.dimension import Shape
from meshtf.errors import UsageError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.transpose_and_broadcast import broadcast, transpose
from meshtf.ops.rearranging.reshape import reshape
from meshtf.patterns.rearrangement import rearrangement


@language_function
def rearrange(x: Tensor, pattern: str, /, **sizes: int) -> Tensor:
    """Splits, merges, transposes or repeats the dimensions of x by a pattern such as "a (b c) -> b a c".

    The left side lists the dimensions of x in their order, each by its name. `(heads d_kv)` splits the dimension at its
    place; `(d_model: heads d_kv)` also names this dimension. The size of one factor of a group may be left out. The
    right side lists the dimensions of the result. There, `(d_model: heads d_kv)` merges two dimensions into one of
    this name. A new name with a size, such as `copies:2`, repeats x. `...` stands for all dimensions not named.

    The result is the same as that of `reshape`, `transpose` and `broadcast`.

    Args:
      x: a tensor of any dtype.
      pattern: the dimensions of x, an arrow, and the dimensions of the result.
      sizes: sizes of names in the pattern. The pattern may also state them: "heads:8".

    Raises:
      ShapeError: the pattern does not fit x. The message underlines the part at fault.

    Examples:
      >>> y = mtf.rearrange(x, "batch (heads d_kv) -> batch heads d_kv", heads=2)
      >>> y
      reshape [batch:4 heads:2 d_kv:4] float32
      >>> mtf.rearrange(y, "batch heads d_kv -> heads (rows: batch d_kv)")
      reshape_1 [heads:2 rows:16] float32
      >>> mtf.rearrange(x, "batch ... -> copies:3 batch ...")
      broadcast [copies:3 batch:4 hidden:8] float32
      >>> mtf.rearrange(y, "batch ... -> batch (features: ...)")
      reshape_2 [batch:4 features:8] float32
    """
    plan = rearrangement(pattern, checked(x).shape, sizes, reduces=False)
    if plan.repeated == plan.before:
        return reshape(x, plan.after)
    return reshape(in_order(reshape(x, plan.before), plan.repeated), plan.after)


def checked(x: object) -> Tensor:
    """Checks that the first argument is a tensor and not the pattern, and returns it."""
    if isinstance(x, str):
        raise UsageError(f"the tensor comes first, and then the pattern: (x, {x!r})")
    return check_tensor(x)


def in_order(x: Tensor, shape: Shape) -> Tensor:
    """x with its dimensions in another order, repeated along the new ones."""
    return transpose(x, shape) if x.shape.ndims == shape.ndims else broadcast(x, shape)
