"""Cases of windows: convolutions and pooling, along dimensions that may be split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node


class Windows:
    """Windows along the last dimensions but one of an image, as TensorFlow defines them."""

    def __init__(self, b: Builder, sizes: Sequence[int], *, is_dilated: bool = True) -> None:
        self.padding = b.rng.choice(["SAME", "SAME", "SYMMETRIC", "VALID", "VALID"])
        self.taps = [b.rng.randint(1, {1: 4, 2: 3, 3: 2}[len(sizes)]) for _ in sizes]
        self.strides = [b.rng.choice([1, 1, 2, 3, 5]) for _ in sizes]
        self.dilations = [b.rng.choice([1, 1, 2, 3]) if is_dilated else 1 for _ in sizes]
        self.reach = [(k - 1) * d + 1 for k, d in zip(self.taps, self.dilations, strict=True)]
        if self.padding == "VALID" and any(r > n for r, n in zip(self.reach, sizes, strict=True)):
            raise RejectedError
        if self.padding == "SYMMETRIC" and any(r % 2 == 0 for r in self.reach):
            raise RejectedError

    def __str__(self) -> str:
        return f"{self.taps}, {self.strides}, {self.dilations}, {self.padding}"

    def elements(self, x: tf.Tensor, outside: float = 0.0) -> tf.Tensor:
        """[taps, .., *windows, channels]: what each window has at each tap."""
        lead = x.shape.rank - len(self.taps) - 1
        counts, pads = [], []
        for size, s, r in zip(x.shape[lead:-1], self.strides, self.reach, strict=True):
            is_inside = self.padding == "VALID"
            count = -(-(size - r + 1) // s) if is_inside else -(-size // s)
            lacking = 0 if is_inside else max(0, (count - 1) * s + r - size)
            before = r // 2 if self.padding == "SYMMETRIC" else lacking // 2
            counts.append(count)
            pads.append([before, 0 if is_inside else max(0, (count - 1) * s + r - size - before)])
        x = tf.pad(x, [[0, 0]] * lead + pads + [[0, 0]], constant_values=tf.cast(outside, x.dtype))
        found = []
        for tap in itertools.product(*map(range, self.taps)):
            begin = [k * d for k, d in zip(tap, self.dilations, strict=True)]
            spans = zip(begin, counts, self.strides, strict=True)
            where = tuple(slice(at, at + (n - 1) * s + 1, s) for at, n, s in spans)
            found.append(x[(..., *where, slice(None))])
        return tf.stack(found)


def _image(b: Builder, count: int) -> tuple[Node, list[int]]:
    if count < 3:
        x = b.pick(least=count + 1, accepts=lambda n: n.tensor.size <= 600)
    else:
        sizes = [b.rng.choice([1, 2]), *(b.rng.choice([2, 2, 3, 4]) for _ in range(count)), b.rng.choice([1, 2])]
        x = b.fresh(mtf.Shape([b.new_dim(n) for n in sizes]), b.dtype)
    return x, [d.size for d in x.shape.dims[-count - 1 : -1]]


def _kernel(b: Builder, windows: Windows, channels: Sequence[mtf.Dimension], dtype: tf.DType) -> Node:
    return b.fresh(mtf.Shape([*(b.new_dim(k) for k in windows.taps), *channels]), dtype, -0.5, 0.5)


def convolution(count: int) -> Case:
    def case(b: Builder) -> None:
        x, sizes = _image(b, count)
        windows, outer = Windows(b, sizes), b.new_dim(b.rng.choice([1, 2, 4]))
        w = _kernel(b, windows, [x.shape[-1], outer], x.tensor.dtype)
        z = getattr(mtf, f"conv{count}d")(x.tensor, w.tensor, windows.strides, windows.padding, windows.dilations)

        def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
            return tf.einsum("t...i,tio->...o", windows.elements(p), tf.reshape(q, [-1, *q.shape[-2:]]))

        b.step(f"conv{count}d[{windows}]", [x, w], z, reference)

    return case


def by_name(b: Builder) -> None:
    """Windows along the first dimension of an image, the second kept, the others summed."""
    x = b.pick(least=2, accepts=lambda n: n.tensor.size <= 600)
    windows = Windows(b, [x.shape[0].size])
    w = _kernel(b, windows, x.shape.dims[1:], x.tensor.dtype)
    tap, stride = w.shape[0].name, {x.names[0]: windows.strides[0]}
    dilation = {x.names[0]: windows.dilations[0]}
    result = mtf.Shape([x.shape[1], x.shape[0]])
    z = mtf.convolution(x.tensor, w.tensor, {x.names[0]: tap}, result, strides=stride, padding=windows.padding,
                        dilations=dilation)  # fmt: skip

    def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        kept = [*p.shape[:2], -1]
        elements = windows.elements(tf.transpose(tf.reshape(p, kept), [1, 0, 2]))
        return tf.einsum("tgws,tgs->gw", elements, tf.reshape(q, [q.shape[0], p.shape[1], -1]))

    b.step(f"convolution[{windows}]", [x, w], z, reference)


def depthwise(count: int) -> Case:
    def case(b: Builder) -> None:
        x, sizes = _image(b, count)
        windows, more = Windows(b, sizes), [b.new_dim(2)] if b.chance(0.5) else []
        w = _kernel(b, windows, [x.shape[-1], *more], x.tensor.dtype)
        ours = getattr(mtf, f"depthwise_conv{count}d")
        z = ours(x.tensor, w.tensor, windows.strides, windows.padding, windows.dilations)

        def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
            flat = tf.reshape(q, [-1, *q.shape[count:]])
            return tf.einsum("t...i,tim->...im" if more else "t...i,ti->...i", windows.elements(p), flat)

        b.step(f"depthwise_conv{count}d[{windows}]", [x, w], z, reference)

    return case


def transposed(count: int) -> Case:
    def case(b: Builder) -> None:
        x, sizes = _image(b, count)
        windows, outer = Windows(b, [99] * count), b.new_dim(b.rng.choice([1, 2, 4]))
        if math.prod(n * s + r for n, s, r in zip(sizes, windows.strides, windows.reach, strict=True)) > 500:
            raise RejectedError
        w = _kernel(b, windows, [outer, x.shape[-1]], x.tensor.dtype)
        ours = getattr(mtf, f"conv{count}d_transpose")
        z = ours(x.tensor, w.tensor, windows.strides, windows.padding, windows.dilations)
        steps = zip(sizes, windows.strides, windows.reach, strict=True)
        grown = [n * s + (max(0, r - s) if windows.padding == "VALID" else 0) for n, s, r in steps]

        def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
            whole = int(np.prod(grown))
            # Of each element of the image, which windows have it at which tap: the matrix of the convolution.
            units = windows.elements(tf.reshape(tf.eye(whole, dtype=p.dtype), [whole, *grown, 1]))[..., 0]
            units = tf.reshape(units, [units.shape[0], whole, -1])
            flat = tf.reshape(p, [-1, units.shape[-1], p.shape[-1]])
            y = tf.einsum("tew,bwi,toi->beo", units, flat, tf.reshape(q, [-1, *q.shape[-2:]]))
            return tf.reshape(y, [*p.shape[: -count - 1], *grown, q.shape[-2]])

        b.step(f"conv{count}d_transpose[{windows}]", [x, w], z, reference)

    return case


def pool(name: str) -> Case:
    def case(b: Builder) -> None:
        count = b.rng.choice([1, 1, 2])
        x, sizes = _image(b, count)
        if name == "max_pool" and not is_clear_of_ties(x):
            raise RejectedError
        windows = Windows(b, sizes, is_dilated=False)
        names = x.names[-count - 1 : -1]
        z = getattr(mtf, name)(x.tensor, dict(zip(names, windows.taps, strict=True)), windows.strides, windows.padding)
        b.step(f"{name}[{windows}]", [x], z, pooled(name, windows))

    return case


def is_clear_of_ties(x: Node) -> bool:
    """Of equal elements one has the gradient, which the reference does not know: there are to be none."""
    gaps = np.diff(np.sort(x.array, axis=None))
    return not gaps.size or bool(np.min(gaps) > 1e-3)


def pooled(name: str, windows: Windows) -> Callable[[tf.Tensor], tf.Tensor]:
    """TensorFlow's function for `max_pool` or `avg_pool`."""
    if name == "max_pool":
        return lambda p: tf.reduce_max(windows.elements(p, -1e3), 0)
    return lambda p: tf.reduce_sum(windows.elements(p), 0) / tf.reduce_sum(windows.elements(tf.ones_like(p)), 0)


CASES: dict[str, Case] = {
    "convolution": by_name,
    **{f"conv{count}d": convolution(count) for count in (1, 2, 3)},
    **{f"conv{count}d_transpose": transposed(count) for count in (1, 2, 3)},
    **{f"depthwise_conv{count}d": depthwise(count) for count in (1, 2, 3)},
    "max_pool": pool("max_pool"),
    "avg_pool": pool("avg_pool"),
}
