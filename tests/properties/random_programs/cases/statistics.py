"""Cases of variances, norms and counts over dimensions, and of quantiles and running products along one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError, has_gradient, is_clear_of
from tests.properties.random_programs.cases.contraction import is_clear_of_ties, reduction_arguments
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.cases.sequence import along_one, at_end, chosen
from tests.properties.random_programs.program import Node, reduce_over, spread


class Reduced:
    """What a reduction of a tensor leaves: the dimensions in any order, and the same of the reference."""

    def __init__(self, b: Builder, x: Node) -> None:
        self.x = x
        self.arguments, self.kept = reduction_arguments(b, x)
        self.lost = [d.name for d in x.shape if not self.kept.has(d.name)]
        self._left = [name for name in x.names if name not in self.lost]

    @property
    def count(self) -> int:
        return math.prod(d.size for d in self.x.shape if d.name in self.lost)

    def over(self, function: Callable[..., tf.Tensor], p: tf.Tensor) -> tf.Tensor:
        axes = [i for i, name in enumerate(self.x.names) if name in self.lost]
        return spread(reduce_over(function, p, axes), self._left, self.kept)

    def centred(self, p: tf.Tensor) -> tf.Tensor:
        return p - spread(self.over(tf.reduce_mean, p), self.kept.dimension_names, self.x.shape)


def variance_and_deviation(b: Builder) -> None:
    """Of elements that are not nearly equal: the gradient of a deviation is infinite at 0."""
    x = b.pick(least=1, low=-2, high=2)
    r, ddof = Reduced(b, x), b.rng.choice([0, 0, 1])
    if b.dtype.is_complex or r.count <= max(1, ddof) or not x.shape.size:
        raise RejectedError

    def variance(p: tf.Tensor) -> tf.Tensor:
        return r.over(tf.reduce_sum, tf.square(r.centred(p))) / (r.count - ddof)

    if not np.all(variance(x.value).numpy() > 0.1):
        raise RejectedError
    z = [f(x.tensor, **r.arguments, ddof=ddof) for f in (mtf.reduce_variance, mtf.reduce_std)]
    b.step(
        f"reduce_variance reduce_std[{r.kept}, ddof {ddof}]", [x], z,
        lambda p: [variance(p), tf.sqrt(variance(p))],
    )  # fmt: skip


def norm(b: Builder) -> None:
    """Away from the corner of a length at 0, and of an absolute value there."""
    x = b.pick(least=1, low=-2, high=2)
    r, order = Reduced(b, x), b.rng.choice([1, 2, math.inf])
    sizes = Node(x.tensor, tf.abs(x.value), x.is_exact)
    is_clear = np.all(np.abs(x.array) > 0.05)
    if order == math.inf:
        is_clear &= not x.tensor.dtype.is_complex and is_clear_of_ties(sizes, r.lost)
    if not is_clear or not x.shape.size:
        raise RejectedError

    def reference(p: tf.Tensor) -> tf.Tensor:
        if order == 2:
            return tf.sqrt(r.over(tf.reduce_sum, tf.math.real(p * tf.math.conj(p))))
        return r.over(tf.reduce_sum if order == 1 else tf.reduce_max, tf.abs(p))

    b.step(f"norm[{r.kept}, {order}]", [x], mtf.norm(x.tensor, **r.arguments, ord=order), reference)


def count_nonzero(b: Builder) -> None:
    x = b.pick(b.rng.choice([b.dtype, b.integer(), tf.bool]), least=1)
    if has_gradient(x.tensor.dtype) and not is_clear_of(x, np.abs):
        raise RejectedError
    r = Reduced(b, x)
    z = mtf.count_nonzero(x.tensor, **r.arguments)

    def reference(p: tf.Tensor) -> tf.Tensor:
        return r.over(tf.reduce_sum, tf.cast(p if p.dtype == tf.bool else p != 0, tf.int64))

    b.step(f"count_nonzero[{r.kept}]", [x], z, reference)


def argmin(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    b.step(f"argmin[{name}]", [x], mtf.argmin(x.tensor, name), lambda p: tf.argmin(p, at))


def quantiles(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    if not x.tensor.dtype.is_floating:
        raise RejectedError
    q = b.rng.choice([0.0, 0.1, 0.3, 0.75, 1.0])
    z = [mtf.median(x.tensor, name), mtf.quantile(x.tensor, q, name)]

    def along_last(p: tf.Tensor, q: float) -> tf.Tensor:
        ordered = chosen(p, tf.argsort(p, stable=True))
        place = q * (p.shape[-1] - 1)
        first, share = math.floor(place), place - math.floor(place)
        last = min(first + 1, p.shape[-1] - 1)
        return ordered[..., first] * (1 - share) + ordered[..., last] * share

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        return [at_end(functools.partial(along_last, q=share), at)(p) for share in (0.5, q)]

    b.step(f"median quantile[{name}, {q}]", [x], z, reference)


def _accumulated(elements: Sequence[tf.Tensor], first: tf.Tensor, *, exclusive: bool, reverse: bool) -> list[tf.Tensor]:
    """Running products, element after element: gradients of TensorFlow's own divide by the elements."""
    found, product = [], first
    for element in reversed(elements) if reverse else elements:
        found += [product] if exclusive else []
        product = product * element
        found += [] if exclusive else [product]
    return found[::-1] if reverse else found


def cumprod(b: Builder) -> None:
    x, at, name = along_one(b)
    exclusive, reverse = b.chance(0.4), b.chance(0.4)
    if not 0 < x.shape[at].size <= 16:
        raise RejectedError
    z = mtf.cumprod(x.tensor, name, exclusive, reverse)

    def along_last(p: tf.Tensor) -> tf.Tensor:
        elements = tf.unstack(p, axis=-1)
        found = _accumulated(elements, 1 + 0 * elements[0], exclusive=exclusive, reverse=reverse)
        return tf.stack(found, -1)

    b.step(f"cumprod[{name}, {exclusive}, {reverse}]", [x], z, at_end(along_last, at), factors=x.shape[at].size)


def cumlogsumexp(b: Builder) -> None:
    """The sigmoids of those that leave out the element itself, of which the first is -inf."""
    x, at, name = along_one(b)
    exclusive, reverse = b.chance(0.4), b.chance(0.4)
    if not x.tensor.dtype.is_floating:
        raise RejectedError
    z = mtf.cumlogsumexp(x.tensor, name, exclusive, reverse)

    def reference(p: tf.Tensor) -> tf.Tensor:
        sums = tf.cumsum(tf.exp(p), at, exclusive, reverse)
        return sums / (1 + sums) if exclusive else tf.math.log(sums)

    text = f"cumlogsumexp[{name}, {exclusive}, {reverse}]"
    b.step(text, [x], mtf.sigmoid(z) if exclusive else z, reference)


CASES: dict[str, Case] = {
    "reduce_variance reduce_std": variance_and_deviation,
    "norm": norm,
    "count_nonzero": count_nonzero,
    "argmin": argmin,
    "median quantile": quantiles,
    "cumprod": cumprod,
    "cumlogsumexp": cumlogsumexp,
}
