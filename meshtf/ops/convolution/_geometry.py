"""The sizes of a convolution: how windows slide along dimensions, with TensorFlow's SAME and VALID, or SYMMETRIC.

For size 6, a window of 3 and a stride of 2 (z: a zero):

    SAME       3 windows     [0 1 2]  [2 3 4]  [4 5 z]      one zero is missing, and the odd one goes after
    VALID      2 windows   [0 1 2]  [2 3 4]               only windows inside
    SYMMETRIC  3 windows   [z 0 1]  [1 2 3]  [3 4 5]      the middles are elements 0, 2 and 4, as in PyTorch's models
"""

from __future__ import annotations

import dataclasses

from meshtf.dimension import Shape
from meshtf.errors import ShapeError
from meshtf.planning.moves.window_reads import Window


@dataclasses.dataclass(frozen=True, slots=True)
class Slide:
    """Windows along one dimension of an image: window p has the elements p * stride - before + k * dilation."""

    image_dim: str
    kernel_dim: str
    image_size: int
    result_size: int
    kernel_size: int
    stride: int
    dilation: int
    before: int

    @property
    def reach(self) -> int:
        """The distance from a window's first element to its last, both counted."""
        return (self.kernel_size - 1) * self.dilation + 1

    @property
    def after(self) -> int:
        """The number of elements beyond the end of the image that the last window covers."""
        return max(0, (self.result_size - 1) * self.stride + self.reach - self.image_size - self.before)

    def read(self, windows: int, parts: int) -> Window:
        """The elements that each of `parts` cores reads for its `windows` windows. The last core may have fewer."""
        needed = list[tuple[int, int]]()
        for first in (j * windows for j in range(parts)):
            count, begin = min(windows, self.result_size - first), first * self.stride - self.before
            needed.append((begin, begin + self.length(count)) if count > 0 else (0, 0))
        return Window(-self.before, windows * self.stride, self.length(windows), needed=tuple(needed))

    def length(self, windows: int) -> int:
        """The number of elements from the start of the first window to the end of the last of `windows`."""
        return (windows - 1) * self.stride + self.reach


def slide(
    image_dim: str, kernel_dim: str, sizes: tuple[int, int], padding: str, *, stride: int = 1, dilation: int = 1
) -> Slide:
    """Windows over an image of known size. `sizes` are those of the image and the kernel.

    SAME has ceil(size / stride) windows. Half of the missing elements are before the image and half after; an odd one
    is after. SYMMETRIC has as many windows, with their middles on element 0 and every `stride`-th element after it.
    VALID has only windows that lie inside.
    """
    image_size, kernel_size = sizes
    reach = (kernel_size - 1) * dilation + 1
    if padding == "SAME":
        count = -(-image_size // stride)
        before = max(0, (count - 1) * stride + reach - image_size) // 2
    elif padding == "SYMMETRIC":
        if reach % 2 == 0:
            raise ShapeError(
                f'a window of {reach} along "{image_dim}" has no middle, which padding="SYMMETRIC" needs; use '
                '"SAME", or mtf.pad first'
            )
        count, before = -(-image_size // stride), reach // 2
    else:
        count, before = -(-(image_size - reach + 1) // stride), 0
    if count < 1:
        raise ShapeError(
            f'a window of {reach} along "{image_dim}" is larger than its size {image_size}; use padding="SAME", '
            f"or mtf.pad first"
        )
    return Slide(image_dim, kernel_dim, image_size, count, kernel_size, stride, dilation, before)


def transposed_slide(
    image_dim: str, kernel_dim: str, sizes: tuple[int, int], padding: str, *, stride: int = 1, dilation: int = 1
) -> Slide:
    """Windows of known number, over an image of unknown size. `sizes` are those of the result and the kernel.

    With VALID, the image is as large as the windows reach. Otherwise it is `stride` times as large as the result.
    """
    count, kernel_size = sizes
    reach = (kernel_size - 1) * dilation + 1
    # Several image sizes have this number of windows. TensorFlow chooses this one.
    image_size = count * stride + (max(0, reach - stride) if padding == "VALID" else 0)
    return slide(image_dim, kernel_dim, (image_size, kernel_size), padding, stride=stride, dilation=dilation)


@dataclasses.dataclass(frozen=True, slots=True)
class Geometry:
    """The three tensors of a convolution and its windows. Image and kernel make the result."""

    image: Shape
    kernel: Shape
    result: Shape
    slides: tuple[Slide, ...]

    @property
    def is_pointwise(self) -> bool:
        """Whether each window is one element, so that the convolution is a matrix product."""
        return not self.groups and all((s.kernel_size, s.before, s.after) == (1, 0, 0) for s in self.slides)

    @property
    def sliding(self) -> list[str]:
        """The image's dimensions along which windows slide."""
        return [s.image_dim for s in self.slides]

    @property
    def taps(self) -> list[str]:
        """The kernel's dimensions along which a window extends."""
        return [s.kernel_dim for s in self.slides]

    @property
    def batch(self) -> list[str]:
        """The dimensions that image and result have, but not the kernel."""
        return [d.name for d in self.image if not self.kernel.has(d) and d.name not in self.sliding]

    @property
    def groups(self) -> list[str]:
        """The dimensions that all three have. They are one index."""
        return [d.name for d in self.kernel if self.image.has(d) and self.result.has(d)]

    @property
    def inner(self) -> list[str]:
        """The dimensions that image and kernel have. They are summed."""
        return [d.name for d in self.kernel if self.image.has(d) and not self.result.has(d)]

    @property
    def outer(self) -> list[str]:
        """The dimensions that kernel and result have."""
        return [d.name for d in self.kernel if not self.image.has(d) and d.name not in self.taps]

    @property
    def image_order(self) -> list[str]:
        return [*self.batch, *self.sliding, *self.groups, *self.inner]

    @property
    def kernel_order(self) -> list[str]:
        return [*self.taps, *self.groups, *self.inner, *self.outer]

    @property
    def result_order(self) -> list[str]:
        return [*self.batch, *self.sliding, *self.groups, *self.outer]
