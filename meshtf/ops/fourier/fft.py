"""Discrete Fourier transforms over named dimensions. Split dimensions are transformed by pencil decomposition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import equal, logical_or
from meshtf.ops.elementwise.where import where
from meshtf.ops.fourier._pencil_decomposition import Stage, cheapest_stages
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.inputs.scalars import whole_number
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.local_work.work_facts import Kernel
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over
from meshtf.planning.whole_dimensions import whole_because, whole_splits

_REAL_OF = {tf.complex64: tf.float32, tf.complex128: tf.float64}
_COMPLEX_OF = {real: whole for whole, real in _REAL_OF.items()}
_KERNELS: dict[bool, list[Kernel]] = {
    False: [tf.signal.fft, tf.signal.fft2d, tf.signal.fft3d],
    True: [tf.signal.ifft, tf.signal.ifft2d, tf.signal.ifft3d],
}


class FourierOperation(Operation):
    """The complex transform over some dimensions, or its inverse.

    The result keeps the layout of the last transform. A reader that wants another layout moves it there.
    """

    mapped = "by name"

    def __init__(self, x: Tensor, dim_names: Sequence[str], *, is_inverse: bool, name: str) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dim_names, self.is_inverse = tuple(dim_names), is_inverse

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), dy = self.inputs, check_tensor(grad_ys[0])
        size = float(math.prod(x.shape.get_dim_by_name(name).size for name in self.dim_names))
        name = "fft" if self.is_inverse else "ifft"
        back = FourierOperation(dy, self.dim_names, is_inverse=not self.is_inverse, name=name).outputs[0]
        # The gradient has the conjugate factors, so it is the other transform. Only `ifft` divides by the number of
        # points.
        return [back / max(1.0, size) if self.is_inverse else back * size]

    def lower(self, planner: Planner) -> None:
        (x,), (y,) = self.inputs, self.outputs
        sources, target = [v.layout for v in planner.tensors.whole_versions(x)], self._wanted(planner)
        dims = [x.shape.axis(name) for name in self.dim_names]
        stages = cheapest_stages(sources, target, x.shape, dims, x.dtype.size, planner.mesh_shape)
        value = planner.read(x, stages[0].layout)
        for stage in stages:
            value = self._transformed(planner, planner.reshard(value, stage.layout), stage)
        planner.write(y, value)

    def _wanted(self, planner: Planner) -> TensorLayout:
        """The layout of the first reader that has these dimensions, or the result's own layout."""
        (y,) = self.outputs
        for consumer in planner.readers.consumers(y):
            for output in consumer.outputs:
                if output.shape == y.shape:
                    return planner.layouts[output]
        return planner.layouts[y]

    def _transformed(self, planner: Planner, value: Value, stage: Stage) -> Value:
        kernel = _over(stage.dims, value.shape.ndims, self.is_inverse)
        points = math.prod(value.slice_shape[d] for d in stage.dims)
        flops = round(5 * math.prod(value.slice_shape) * math.log2(max(points, 1)))
        spec = (value.shape, value.dtype, stage.layout)
        kind = "ifft" if self.is_inverse else "fft"
        return planner.compute(kind, lambda core, s: kernel(s), [value], [spec], flops=flops)[0]


class HalfFourierOperation(Operation):
    """The transform of real numbers over a dimension, or its inverse. Half of the transform determines the rest."""

    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, new: Dimension, *, is_inverse: bool, name: str) -> None:
        shape = Shape([new if d.name == dim_name else d for d in x.shape])
        super().__init__([x], [(shape, (_REAL_OF if is_inverse else _COMPLEX_OF)[x.dtype])], name=name)
        self.dim, self.new, self.is_inverse = x.shape.get_dim_by_name(dim_name), new, is_inverse

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradient. The inverse transform counts every number twice, except the first and, for even sizes, the
        last.
        """
        dy, half, size = check_tensor(grad_ys[0]), *((self.dim, self.new) if self.is_inverse else (self.new, self.dim))
        kind, name = self.inputs[0].dtype if self.is_inverse else dy.dtype, self.new.name
        counts = cast(_counts(dy, half, size.size), kind)
        if self.is_inverse:
            back = HalfFourierOperation(dy, name, self.dim, is_inverse=False, name="rfft").outputs[0]
            return [back * counts / float(size.size)]
        back = HalfFourierOperation(dy / counts, name, self.dim, is_inverse=True, name="irfft").outputs[0]
        return [back * float(size.size)]

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(
            layouts, self.inputs, [self.dim.name, self.new.name], "each number of a transform needs all others"
        )

    def lower(self, planner: Planner) -> None:
        (x,), (y,) = self.inputs, self.outputs
        splits = whole_splits(planner, [x], [self.dim.name, self.new.name], [y])
        value, layout = planner.read(x, layout_over(x.shape, splits)), layout_over(y.shape, splits)
        axis, size = x.shape.axis(self.dim), [self.new.size if self.is_inverse else self.dim.size]
        function = tf.signal.irfft if self.is_inverse else tf.signal.rfft
        kernel = _with_last([axis], x.shape.ndims, lambda s: function(s, size))

        def emit(core: Core, s: tf.Tensor) -> tf.Tensor:
            return kernel(s)

        flops = round(2.5 * math.prod(value.slice_shape) * math.log2(max(*size, 1)))
        kind = "irfft" if self.is_inverse else "rfft"
        planner.write(y, planner.compute(kind, emit, [value], [(y.shape, y.dtype, layout)], flops=flops)[0])


@language_function
def fft(x: Tensor, dims: ShapeLike, name: str | None = None) -> Tensor:
    """The discrete Fourier transform of a complex tensor over one or several dimensions.

    Raises:
      ShapeError: x lacks a dimension, or one is given twice.
      DtypeError: x is not complex.

    Examples:
      >>> wave = mtf.constant(mesh, [1.0, 0.0, 0.0, 0.0], "time:4", tf.complex64)
      >>> value(mtf.fft(wave, "time"))
      array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
      >>> mtf.fft(mtf.zeros(mesh, "x:4 y:8", tf.complex64), ["x", "y"])
      fft_1 [x:4 y:8] complex64
    """
    return _fourier(x, _named(x, dims), False, name or "fft")


@language_function
def ifft(x: Tensor, dims: ShapeLike, name: str | None = None) -> Tensor:
    """The inverse of `fft`: it uses the conjugate factors, and divides by the number of points.

    Raises:
      ShapeError: x lacks a dimension, or one is given twice.
      DtypeError: x is not complex.

    Examples:
      >>> value(mtf.ifft(mtf.ones(mesh, "frequency:4", tf.complex64), "frequency"))
      array([1.+0.j, 0.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    return _fourier(x, _named(x, dims), True, name or "ifft")


@language_function
def rfft(x: Tensor, dims: ShapeLike, half_dim: str | None = None, name: str | None = None) -> Tensor:
    """The transform of a real tensor.

    The last of `dims` has n // 2 + 1 elements in the result, which determine the rest.

    Args:
      x: float32 or float64.
      dims: dimensions of x.
      half_dim: another name for the last of them in the result, which may have its own split.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, one is given twice, or x has `half_dim` already.
      DtypeError: x is neither float32 nor float64.

    Examples:
      >>> mtf.rfft(x, "hidden")
      rfft [batch:4 hidden:5] complex64
      >>> mtf.rfft(x, "hidden", half_dim="frequency")
      rfft_1 [batch:4 frequency:5] complex64
    """
    *others, last = _named(x, dims)
    if x.dtype not in _COMPLEX_OF:
        raise DtypeError(f"rfft takes float32 or float64, not {x.dtype.name}; convert with mtf.cast, or use mtf.fft")
    new = _renamed(x, last, half_dim, last.size // 2 + 1)
    half = HalfFourierOperation(x, last.name, new, is_inverse=False, name=name or "rfft").outputs[0]
    return _fourier(half, others, False, "fft") if others else half


@language_function
def irfft(
    x: Tensor, dims: ShapeLike, size: int | None = None, whole_dim: str | None = None, name: str | None = None
) -> Tensor:
    """The inverse of `rfft`: a real tensor, from half of its transform.

    Args:
      x: complex64 or complex128.
      dims: dimensions of x.
      size: the size of the last of them in the result. For m elements, it is 2 (m - 1) by default, or 2 m - 1.
      whole_dim: another name for the last of them in the result.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, one is given twice, x has `whole_dim` already, or `size` does not fit.
      DtypeError: x is not complex.

    Examples:
      >>> mtf.irfft(mtf.rfft(x, "hidden", half_dim="frequency"), "frequency", size=8, whole_dim="hidden")
      irfft [batch:4 hidden:8] float32
    """
    *others, last = _named(x, dims)
    count = 2 * (last.size - 1) if size is None else whole_number(size, "size")
    if count < 1 or count // 2 + 1 != last.size:
        fitting = f"{2 * last.size - 2} or {2 * last.size - 1}" if last.size > 1 else "1"
        raise ShapeError(f'"{last.name}" has {last.size} elements, half of a result of size {fitting}, not {count}')
    new = _renamed(x, last, whole_dim, count)
    rest = _fourier(x, others, True, "ifft") if others else _complex(x)
    return HalfFourierOperation(rest, last.name, new, is_inverse=True, name=name or "irfft").outputs[0]


def _fourier(x: Tensor, dims: Sequence[Dimension], is_inverse: bool, name: str) -> Tensor:
    return FourierOperation(_complex(x), [d.name for d in dims], is_inverse=is_inverse, name=name).outputs[0]


def _complex(x: Tensor) -> Tensor:
    if not x.dtype.is_complex:
        raise DtypeError(f"a complex tensor is needed, not {x.dtype.name}; use mtf.complex, mtf.cast or mtf.rfft")
    return x


def _named(x: Tensor, dims: ShapeLike) -> list[Dimension]:
    found = list(check_tensor(x).shape.only(dims))
    if not found:
        raise ShapeError("no dimension is given to transform; name at least one")
    return found


def _renamed(x: Tensor, dim: Dimension, name: str | None, size: int) -> Dimension:
    if name is not None and name != dim.name and x.shape.has(name):
        raise ShapeError(f'[{x.shape}] has a dimension "{name}" already; choose another name')
    return Dimension(dim.name if name is None else name, size)


def _counts(like: Tensor, half: Dimension, size: int) -> Tensor:
    """How often each number of a half transform occurs in the whole transform."""
    place = positions(like.mesh, half)
    is_single = equal(place, 0) if size % 2 else logical_or(equal(place, 0), equal(place, size // 2))
    return where(is_single, 1.0, 2.0)


def _over(dims: Sequence[int], ndims: int, is_inverse: bool) -> Kernel:
    """A function that transforms a slice over some dimensions, three at a time."""
    kernels = _KERNELS[is_inverse]

    def transformed(x: tf.Tensor) -> tf.Tensor:
        for first in range(0, len(dims), len(kernels)):
            some = dims[first : first + len(kernels)]
            x = _with_last(some, ndims, kernels[len(some) - 1])(x)
        return x

    return transformed


def _with_last(axes: Sequence[int], ndims: int, kernel: Callable[[tf.Tensor], tf.Tensor]) -> Kernel:
    """`kernel`, applied with some dimensions moved to the end and then back."""
    # TensorFlow transforms the innermost dimensions only.
    order = [*(i for i in range(ndims) if i not in axes), *axes]
    if order == list(range(ndims)):
        return kernel
    back = [order.index(i) for i in range(ndims)]
    return lambda x: tf.transpose(kernel(tf.transpose(x, order)), back)
