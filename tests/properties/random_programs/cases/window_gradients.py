"""Cases of the gradients of convolutions and pooling, called by their names."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as original
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.cases.neighbours import Windows, is_clear_of_ties, pooled
from tests.properties.random_programs.program import Node


def pulled_back(function: Callable[[tf.Tensor], tf.Tensor], at: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """The gradient of a function of one array, weighted by `dy`."""
    with tf.GradientTape() as tape:
        tape.watch(at)
        y = function(at)
    return tf.convert_to_tensor(tape.gradient(y, at, dy, unconnected_gradients=tf.UnconnectedGradients.ZERO))


def _operands(b: Builder, count: int, *, is_dilated: bool = True) -> tuple[Node, Node, Windows]:
    """An image and a filter."""
    sizes = [b.rng.choice([1, 2, 3, 4] if count == 3 else [1, 2, 4, 6]) for _ in range(count)]
    dims = [b.new_dim(n) for n in [b.rng.choice([1, 2]), *sizes, b.rng.choice([1, 2])]]
    windows = Windows(b, sizes, is_dilated=is_dilated)
    x = b.fresh(mtf.Shape(dims), b.dtype)
    taps = [b.new_dim(n) for n in windows.taps]
    return x, b.fresh(mtf.Shape([*taps, dims[-1], b.new_dim(b.rng.choice([1, 2]))]), b.dtype, -0.5, 0.5), windows


def _convolved(windows: Windows, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    return tf.einsum("t...i,tio->...o", windows.elements(x), tf.reshape(w, [-1, *w.shape[-2:]]))


def of_convolution(count: int, by: str) -> Case:
    def case(b: Builder) -> None:
        if b.dtype.is_complex:
            raise RejectedError
        x, w, windows = _operands(b, count)
        steps = windows.strides, windows.padding
        forward = getattr(mtf, f"conv{count}d")(x.tensor, w.tensor, *steps, windows.dilations)
        dy = b.fresh(forward.shape, b.dtype)
        function = getattr(original, f"conv{count}d_backprop_{by}")
        if by == "input":
            z = function(x.shape, w.tensor, dy.tensor, *steps, dilations=windows.dilations)
            shape = x.shape.to_integer_list
            b.step(
                f"{function.__name__}[{windows}]", [w, dy], z,
                lambda q, d: pulled_back(lambda p: _convolved(windows, p, q), tf.zeros(shape, d.dtype), d),
            )  # fmt: skip
            return
        z = function(x.tensor, w.shape, dy.tensor, *steps, dilations=windows.dilations)
        shape = w.shape.to_integer_list
        b.step(
            f"{function.__name__}[{windows}]", [x, dy], z,
            lambda p, d: pulled_back(lambda q: _convolved(windows, p, q), tf.zeros(shape, d.dtype), d),
        )  # fmt: skip

    return case


def of_transposed(count: int, by: str) -> Case:
    """The transposed convolution takes images of the forward one's results to its inputs."""

    def case(b: Builder) -> None:
        if b.dtype.is_complex:
            raise RejectedError
        whole, w, windows = _operands(b, count)
        steps = windows.strides, windows.padding
        x = b.fresh(getattr(mtf, f"conv{count}d")(whole.tensor, w.tensor, *steps, windows.dilations).shape, b.dtype)
        grown = getattr(mtf, f"conv{count}d_transpose")(x.tensor, w.tensor, *steps, windows.dilations).shape
        if grown.to_integer_list != whole.shape.to_integer_list:
            raise RejectedError  # the size that the forward one had is not the one that is grown
        dy = b.fresh(grown, b.dtype)
        function = getattr(original, f"conv{count}d_transpose_backprop_{by}")
        if by == "input":
            z = function(x.shape, w.tensor, dy.tensor, *steps, dilations=windows.dilations)
            b.step(f"{function.__name__}[{windows}]", [w, dy], z, lambda q, d: _convolved(windows, d, q))
            return
        z = function(x.tensor, w.shape, dy.tensor, *steps, dilations=windows.dilations)
        shape = w.shape.to_integer_list
        b.step(
            f"{function.__name__}[{windows}]", [x, dy], z,
            lambda p, d: pulled_back(lambda q: _convolved(windows, d, q), tf.zeros(shape, d.dtype), p),
        )  # fmt: skip

    return case


def pool_backprop(kind: str) -> Case:
    def case(b: Builder) -> None:
        count = b.rng.choice([2, 3])
        x, _, windows = _operands(b, count, is_dilated=False)
        name = "max_pool" if kind == "MAX" else "avg_pool"
        if windows.padding != "VALID" or b.dtype.is_complex or (kind == "MAX" and not is_clear_of_ties(x)):
            raise RejectedError
        names = x.names[1:-1]
        ksize, strides = dict(zip(names, windows.taps, strict=True)), dict(zip(names, windows.strides, strict=True))
        y = getattr(mtf, name)(x.tensor, ksize, strides, windows.padding)
        dy = b.fresh(y.shape, b.dtype)
        z = original.pool_backprop(x.tensor, y, dy.tensor, ksize, strides, f"{kind}_{count}D")
        function = pooled(name, windows)
        b.step(f"pool_backprop[{kind}, {windows}]", [x, dy], z, lambda p, d: pulled_back(function, tf.identity(p), d))

    return case


CASES: dict[str, Case] = {
    **{f"conv{n}d_backprop_{by}": of_convolution(n, by) for n in (2, 3) for by in ("input", "filter")},
    **{f"conv{n}d_transpose_backprop_{by}": of_transposed(n, by) for n in (2, 3) for by in ("input", "filter")},
    **{f"pool_backprop {kind}": pool_backprop(kind) for kind in ("MAX", "AVG")},
}
