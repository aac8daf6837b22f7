"""Reductions by a pattern: "batch (h 2) (w 2) c -> batch h w c"."""

from __future__ import annotations

from collections.abc import Callable

from meshtf.call_sites import language_function
from meshtf.errors import UsageError, nearest
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.reduction import reduce_mean, reduce_sum
from meshtf.ops.rearranging.rearrange import checked, in_order
from meshtf.ops.rearranging.reshape import reshape
from meshtf.ops.reductions.any_and_all import reduce_all, reduce_any
from meshtf.ops.reductions.products_and_extrema import reduce_max, reduce_min, reduce_prod
from meshtf.patterns.rearrangement import rearrangement

_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
    "min": reduce_min,
    "prod": reduce_prod,
    "any": reduce_any,
    "all": reduce_all,
}


@language_function
def reduce(x: Tensor, pattern: str, reduction: str, /, **sizes: int) -> Tensor:
    """x reduced over the dimensions that only the left side of a pattern has.

    The pattern is written as for `mtf.rearrange`. A number in a group is a factor without a name, which is reduced. The
    result is the same as that of a `reshape`, the reduction and a second `reshape`.

    Args:
      x: a tensor that the reduction takes: numbers, or bool for "any" and "all".
      pattern: the dimensions of x, an arrow, and the dimensions of the result.
      reduction: "sum", "mean", "prod", "max" or "min"; "any" or "all" of bool.
      sizes: sizes of names in the pattern. The pattern may also state them: "rows:8".

    Raises:
      ShapeError: the pattern does not fit x. The message underlines the part at fault.
      UsageError: there is no such reduction.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 h:6 w:8 channels:3")
      >>> mtf.reduce(image, "batch (h 2) (w 2) channels -> batch h w channels", "max")
      reduce_max [batch:4 h:3 w:4 channels:3] float32
      >>> mtf.reduce(image, "batch h w channels -> channels batch", "mean")
      divide [channels:3 batch:4] float32
      >>> mtf.reduce(image, "... channels -> ...", "sum")
      reduce_sum [batch:4 h:6 w:8] float32
    """
    checked(x)
    if "->" in str(reduction):
        raise UsageError(f"the pattern comes before the reduction: (x, {reduction!r}, {pattern!r})")
    if reduction not in _REDUCTIONS:
        known = ", ".join(f'"{name}"' for name in _REDUCTIONS)
        raise UsageError(f"reduction {reduction!r} is not one of {known}{nearest(str(reduction), _REDUCTIONS)}")
    plan = rearrangement(pattern, x.shape, sizes, reduces=True)
    kept = _REDUCTIONS[reduction](reshape(x, plan.before), output_shape=plan.kept)
    return reshape(in_order(kept, plan.repeated), plan.after)
