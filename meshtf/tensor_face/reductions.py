"""Methods that reduce dimensions of a tensor, or work along one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshtf.call_sites import tensor_method
from meshtf.dimension import DimensionLike, ShapeLike
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


class Reductions(Face):
    """Sums, extrema and the like over named dimensions. Without a name, they reduce all dimensions."""

    @tensor_method("x.sum")
    def sum(self, *dims: ShapeLike) -> Tensor:
        """The sum over dimensions, as in `x.sum("length")`; see `mtf.reduce_sum`."""
        return self._reduced("reduce_sum", dims)

    @tensor_method("x.mean")
    def mean(self, *dims: ShapeLike) -> Tensor:
        """The mean over dimensions; see `mtf.reduce_mean`."""
        return self._reduced("reduce_mean", dims)

    @tensor_method("x.max")
    def max(self, *dims: ShapeLike) -> Tensor:
        """The largest element over dimensions; see `mtf.reduce_max`."""
        return self._reduced("reduce_max", dims)

    @tensor_method("x.min")
    def min(self, *dims: ShapeLike) -> Tensor:
        """The smallest element over dimensions; see `mtf.reduce_min`."""
        return self._reduced("reduce_min", dims)

    @tensor_method("x.prod")
    def prod(self, *dims: ShapeLike) -> Tensor:
        """The product over dimensions; see `mtf.reduce_prod`."""
        return self._reduced("reduce_prod", dims)

    @tensor_method("x.var")
    def var(self, *dims: ShapeLike, ddof: int = 0) -> Tensor:
        """The variance over dimensions; see `mtf.reduce_variance`."""
        return self._reduced("reduce_variance", dims, ddof=ddof)

    @tensor_method("x.std")
    def std(self, *dims: ShapeLike, ddof: int = 0) -> Tensor:
        """The standard deviation over dimensions; see `mtf.reduce_std`."""
        return self._reduced("reduce_std", dims, ddof=ddof)

    @tensor_method("x.norm")
    def norm(self, *dims: ShapeLike, ord: float = 2) -> Tensor:  # noqa: A002  # the name that NumPy gives it
        """The length of the vectors over dimensions; see `mtf.norm`."""
        return self._reduced("norm", dims, ord=ord)

    @tensor_method("x.any")
    def any(self, *dims: ShapeLike) -> Tensor:
        """Whether any element is true over dimensions; see `mtf.reduce_any`."""
        return self._reduced("reduce_any", dims)

    @tensor_method("x.all")
    def all(self, *dims: ShapeLike) -> Tensor:
        """Whether all elements are true over dimensions; see `mtf.reduce_all`."""
        return self._reduced("reduce_all", dims)

    @tensor_method("x.argmax")
    def argmax(self, dim: DimensionLike) -> Tensor:
        """The int32 index of the first maximum along a dimension; see `mtf.argmax`."""
        return self._along("argmax", dim)

    @tensor_method("x.argmin")
    def argmin(self, dim: DimensionLike) -> Tensor:
        """The int32 index of the first minimum along a dimension; see `mtf.argmin`."""
        return self._along("argmin", dim)

    @tensor_method("x.softmax")
    def softmax(self, dim: DimensionLike, *, extra_logit: Tensor | float | None = None) -> Tensor:
        """exp(x) / sum(exp(x)) along a dimension; see `mtf.softmax`."""
        return self._along("softmax", dim, extra_logit=extra_logit)

    @tensor_method("x.log_softmax")
    def log_softmax(self, dim: DimensionLike, *, extra_logit: Tensor | float | None = None) -> Tensor:
        """The logarithm of the softmax along a dimension; see `mtf.log_softmax`."""
        return self._along("log_softmax", dim, extra_logit=extra_logit)

    @tensor_method("x.logsumexp")
    def logsumexp(self, dim: DimensionLike, *, extra_logit: Tensor | float | None = None) -> Tensor:
        """log(sum(exp(x))) along a dimension; see `mtf.reduce_logsumexp`."""
        return self._along("reduce_logsumexp", dim, extra_logit=extra_logit)

    @tensor_method("x.cumsum")
    def cumsum(self, dim: DimensionLike, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
        """Running sums along a dimension; see `mtf.cumsum`."""
        return self._along("cumsum", dim, exclusive=exclusive, reverse=reverse)

    @tensor_method("x.cumprod")
    def cumprod(self, dim: DimensionLike, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
        """Running products along a dimension; see `mtf.cumprod`."""
        return self._along("cumprod", dim, exclusive=exclusive, reverse=reverse)

    @tensor_method("x.argsort")
    def argsort(self, dim: DimensionLike, *, direction: str = "ASCENDING") -> Tensor:
        """The int32 indices that sort the elements along a dimension; see `mtf.argsort`."""
        return self._along("argsort", dim, direction=direction)

    def _reduced(self, function: str, names: tuple[ShapeLike, ...], **options: Any) -> Tensor:
        """The reduction of this name over the dimensions; over all dimensions if none is named."""
        if not names:
            return registered(function)(self, **options)
        dims = self.shape.only(*names)
        if len(dims) == 1:
            return registered(function)(self, reduced_dim=dims[0], **options)
        return registered(function)(self, output_shape=self.shape - dims, **options)

    def _along(self, function: str, dim: DimensionLike, **options: Any) -> Tensor:
        return registered(function)(self, self.shape[self.shape.axis(dim)], **options)
