"""The gradient of pooling as a function, for gradients that you write yourself. Otherwise `mtf.gradients` makes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshtf.call_sites import language_function
from meshtf.errors import ShapeError, UsageError, nearest
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.convolution._arguments import Steps
from meshtf.ops.convolution.pooling import avg_pool, max_pool
from meshtf.ops.rearranging.with_layout import with_layout_of

_POOLING = {"MAX_2D": (max_pool, 2), "AVG_2D": (avg_pool, 2), "MAX_3D": (max_pool, 3), "AVG_3D": (avg_pool, 3)}


@language_function
def pool_backprop(
    x: Tensor,
    y: Tensor,
    dy: Tensor,
    ksize: Mapping[str, int] | Sequence[int],
    strides: Steps,
    pool_fn_string: str,
    name: str | None = None,
) -> Tensor:
    """The gradient of `max_pool` or `avg_pool` with respect to x.

    The first of equal elements gets it.

    Args:
      x: the tensor that was pooled, with "VALID" padding.
      y: the result.
      dy: its gradient.
      ksize: sizes of the windows by dimension, or of the last dimensions before the channels, in order.
      strides: the steps from one window to the next.
      pool_fn_string: "MAX_2D", "AVG_2D", "MAX_3D" or "AVG_3D": over two dimensions or three.
      name: the operation's name.

    Raises:
      UsageError: there is no such pooling.
      ShapeError: `ksize` has another number of dimensions, or y or dy has another shape than the result.

    Examples:
      >>> image = mtf.constant(mesh, [[[1.0], [5.0]], [[2.0], [4.0]]], "height:2 width:2 channels:1")
      >>> y = mtf.max_pool(image, {"height": 2, "width": 2})
      >>> dx = mtf.pool_backprop(image, y, mtf.ones_like(y), [2, 2], 2, "MAX_2D")
      >>> value(mtf.reshape(dx, "height:2 width:2"))
      array([[0., 1.],
             [0., 0.]], dtype=float32)
    """
    if pool_fn_string not in _POOLING:
        known = ", ".join(_POOLING)
        raise UsageError(f"pool_fn_string is one of {known}, not {pool_fn_string!r}{nearest(pool_fn_string, _POOLING)}")
    pool, count = _POOLING[pool_fn_string]
    if len(ksize) != count or check_tensor(x).shape.ndims < count:
        raise ShapeError(f"{pool_fn_string} slides windows along {count} dimensions; ksize is {ksize}, of [{x.shape}]")
    if not isinstance(ksize, Mapping):
        ksize = dict(zip(x.shape.dimension_names[-count - 1 : -1], ksize, strict=True))
    result = pool(x, ksize, strides, name=name or "pool_backprop")
    for what, given in (("y", check_tensor(y, "y")), ("dy", check_tensor(dy, "dy"))):
        if set(given.shape) != set(result.shape):
            raise ShapeError(f"{what} is [{given.shape}], and pooling gives [{result.shape}]")
    return _through_the_chain(result, x, transpose(dy, result.shape))


def _through_the_chain(result: Tensor, x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of x, through a chain of operations that each take the result of the one before."""
    with x.graph.variable_scope("gradients"):
        while result is not x:
            grad, *_ = result.operation.gradient([dy])
            assert grad is not None
            result, dy = result.operation.inputs[0], grad
    return with_layout_of(dy, x) if x.is_overridden else dy
