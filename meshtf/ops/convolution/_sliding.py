"""The windows of a convolution: their strides, dilations and padding, and the sizes that result from these."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True, slots=True)
class Sliding:
    """The strides, the dilations and the [before, after] zeros of each spatial dimension."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]

    @property
    def is_dilated(self) -> bool:
        return max(self.dilations) > 1

    @property
    def is_padded(self) -> bool:
        return any(before or after for before, after in self.paddings)

    def is_same(self, sizes: Sequence[int], taps: Sequence[int]) -> bool:
        """Whether an image of these sizes is padded as TensorFlow pads for SAME."""
        return self.paddings == tuple(map(same_padding, sizes, taps, self.strides, self.dilations))

    def reversed(self) -> Sliding:
        """The same windows over an image whose spatial dimensions are in the opposite order."""
        return Sliding(self.strides[::-1], self.dilations[::-1], self.paddings[::-1])

    def padded_sizes(self, sizes: Sequence[int]) -> list[int]:
        return [n + sum(padding) for n, padding in zip(sizes, self.paddings, strict=True)]


def same_padding(size: int, taps: int, stride: int, dilation: int) -> tuple[int, int]:
    """The [before, after] zeros with which TensorFlow pads one dimension for SAME."""
    lacking = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
    return lacking // 2, lacking - lacking // 2


def leaves_gaps(sliding: Sliding, taps: Sequence[int]) -> bool:
    """Whether there are elements between windows."""
    return any(stride > k for stride, k in zip(sliding.strides, taps, strict=False))


def single_windows(counts: Sequence[int], sliding: Sliding) -> list[bool]:
    """Whether each dimension has a single window and a stride above 1."""
    return [count == 1 and stride > 1 for count, stride in zip(counts, sliding.strides, strict=True)]


def window_counts(x: tf.Tensor, taps: Sequence[int], sliding: Sliding) -> list[int]:
    """The number of windows along each dimension of an image."""
    sizes = x.shape.as_list()[1 : 1 + len(sliding.strides)]
    steps = zip(sliding.padded_sizes(sizes), taps, sliding.strides, sliding.dilations, strict=False)
    return [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in steps]


def lacks_groups(x: tf.Tensor, sliding: Sliding) -> bool:
    """Whether an image or a result has no axis of groups."""
    return x.shape.rank == len(sliding.strides) + 2


def taps_of(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of a window's elements."""
    return itertools.product(*(range(n) for n in sizes))


def spatial(x: tf.Tensor) -> list[int]:
    """The sizes of the spatial dimensions of an image that has the axis of groups."""
    return x.shape.as_list()[1:-2]


def side_by_side(sliding: Sliding, i: int) -> Sliding:
    """The windows of one dimension side by side, without zeros around them."""
    strides, dilations, paddings = list(sliding.strides), list(sliding.dilations), list(sliding.paddings)
    strides[i], dilations[i], paddings[i] = 1, 1, (0, 0)
    return Sliding(tuple(strides), tuple(dilations), tuple(paddings))


def alone(sliding: Sliding, i: int) -> Sliding:
    """The windows of one dimension. Along all others, windows are one element each, side by side."""
    paddings = [padding if j == i else (0, 0) for j, padding in enumerate(sliding.paddings)]
    strides, dilations = ([n if j == i else 1 for j, n in enumerate(x)] for x in (sliding.strides, sliding.dilations))
    return Sliding(tuple(strides), tuple(dilations), tuple(paddings))


def widened(sliding: Sliding) -> Sliding:
    """One spatial dimension as two, the first of size 1."""
    return Sliding((1, *sliding.strides), (1, *sliding.dilations), ((0, 0), *sliding.paddings))
