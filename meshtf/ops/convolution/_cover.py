"""The windows that reach a core's slice of an image."""

from __future__ import annotations

import tensorflow as tf

from meshtf.layout import Axes
from meshtf.ops.convolution._geometry import Slide
from meshtf.planning.moves.window_reads import Window
from meshtf.planning.plan import Core


class Cover:
    """The windows that reach a core's slice of the image along one dimension, and the slice's place among them.

    An image of 8 on 2 cores, with windows of 3 and stride 1 (SAME), has windows around each element. The second core's
    slice 4..7 is reached by windows 3..7: the gradient at element 4 needs the gradient of window 3, which the first
    core has. `window` says which windows to exchange.
    """

    def __init__(self, slide: Slide, n: int, parts: int, axes: Axes) -> None:
        self.slide, self.n, self.parts, self.axes = slide, n, parts, axes
        stride, reach = slide.stride, slide.reach
        begin = slide.before - max(reach - stride, 0)
        starts = [(j * n + begin) // stride if parts > 1 else 0 for j in range(parts)]
        ends = [(j * n + n - 1 + slide.before) // stride + 1 for j in range(parts)]
        length = max(e - s for s, e in zip(starts, ends, strict=True)) if parts > 1 else slide.result_size
        self.window = Window(begin, n, length, stride, self._needed())
        self.has_padding = parts > 1 and any(s < 0 or s + length > slide.result_size for s in starts)
        """Whether some core has windows before or after those of the result, which are padding."""
        self._offsets = [j * n + slide.before - s * stride for j, s in enumerate(starts)]
        self._is_fixed = len(set(self._offsets)) == 1

    def _needed(self) -> tuple[tuple[int, int], ...]:
        """The windows that reach the elements of each core's slice. Padding of the image needs none."""
        slide, found = self.slide, list[tuple[int, int]]()
        for first in range(0, self.parts * self.n, max(self.n, 1)):
            end = min(first + self.n, slide.image_size)
            begin = -((slide.reach - 1 - slide.before - first) // slide.stride)
            found.append((begin, (end - 1 + slide.before) // slide.stride + 1) if first < end else (0, 0))
        return tuple(found)

    @property
    def padding(self) -> tuple[int, int]:
        """The numbers of elements around the slice that the windows cover, if they are the same on every core."""
        before = self._offsets[0] if self._is_fixed else 0
        return before, max(0, self.slide.length(self.window.length) - before - self.size)

    @property
    def size(self) -> int:
        """The size of the slice, or of everything that the windows cover, from which each core then cuts its slice."""
        return self.n if self._is_fixed else max(self.slide.length(self.window.length), max(self._offsets) + self.n)

    def counted(self, core: Core) -> tf.Tensor:
        """bool [windows]: whether each of a core's windows belongs to the result."""
        windows = self.window.start(core.coordinate(self.axes)) + tf.range(self.window.length)
        return tf.logical_and(windows >= 0, windows < self.slide.result_size)

    def cut(self, core: Core, dx: tf.Tensor, axis: int) -> tf.Tensor:
        if self._is_fixed:
            return dx
        position = core.coordinate(self.axes)
        offset = position * self.n + self.slide.before - self.window.start(position) * self.slide.stride
        begin = [offset if i == axis else 0 for i in range(len(dx.shape))]
        return tf.slice(dx, begin, [self.n if i == axis else m for i, m in enumerate(dx.shape.as_list())])
