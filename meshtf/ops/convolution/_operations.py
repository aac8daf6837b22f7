"""Convolution and its two gradients.

Each is a gradient of the others, so they can be differentiated any number of times.

Dimensions may be split over the mesh. Batch, groups and outer channels need no communication. A sum over split inner
channels is left pending. Along a split spatial dimension, neighbours exchange the borders that windows reach over.
Padding holds zeros along dimensions that are summed, and along those in which windows slide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.layout import Axes, axes_size
from meshtf.ops.convolution import _kernels as kernels
from meshtf.ops.convolution._cover import Cover
from meshtf.ops.convolution._geometry import Geometry
from meshtf.ops.convolution._reshaping import reshaped, transposed
from meshtf.ops.convolution._sliding import Sliding
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import BatchedRows, MatrixProduct, WorkFacts
from meshtf.planning.moves.window_reads import read_window
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import choose_splits, layout_over, summed_axes


class Splits:
    """The mesh axes of each dimension of one convolution, chosen once for a table of layouts."""

    def __init__(self, operation: Operation, geometry: Geometry) -> None:
        self._operation, self._geometry = operation, geometry
        self._chosen: tuple[LayoutTable, dict[str, Axes]] | None = None

    def under(self, layouts: LayoutTable) -> dict[str, Axes]:
        # `pending_axes` and `lower` must get the same splits. They are called many times for one table of layouts.
        if self._chosen is None or self._chosen[0] is not layouts:
            geometry, operation = self._geometry, self._operation
            shapes = (geometry.image, geometry.kernel, geometry.result)
            splits = choose_splits(operation.inputs, operation.outputs[0], layouts, shapes=shapes, whole=geometry.taps)
            self._chosen = (layouts, splits)
        return self._chosen[1]


class ConvolutionOperation(Operation):
    """Makes the result from image and kernel."""

    is_product, takes_padding = True, True

    def __init__(self, image: Tensor, kernel: Tensor, geometry: Geometry, name: str = "conv") -> None:
        super().__init__([image, kernel], [(geometry.result, same_dtype([image, kernel]))], name=name)
        self.geometry, self._splits = geometry, Splits(self, geometry)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (image, kernel), dy = self.inputs, check_tensor(grad_ys[0])
        return [
            ConvolutionImageOperation(dy, kernel, self.geometry).outputs[0],
            ConvolutionKernelOperation(image, dy, self.geometry).outputs[0],
        ]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return summed_axes(self._splits.under(layouts), self.outputs[0].shape)

    def lower(self, planner: Planner) -> None:
        geometry, splits = self.geometry, self._splits.under(planner.layouts)
        image, sliding = _read_windows(planner, self.inputs[0], geometry, splits, summed=geometry.inner)
        kernel = planner.read(self.inputs[1], layout_over(geometry.kernel, splits), _zeros(geometry.inner))
        to_image, to_kernel = _canonical(geometry, "image"), _canonical(geometry, "kernel")
        layout = layout_over(geometry.result, splits)
        size = layout.slice_shape(geometry.result, planner.mesh_shape)
        batch = _split_batch(geometry, splits)
        to_result = _restored(geometry.result, geometry.result_order, size, batch)

        def emit(core: Core, x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            given = to_image(x), to_kernel(w), sliding
            return to_result(kernels.convolved(*given, in_bfloat16=core.convolves_bfloat16))

        product = _product(geometry, size, kernel.slice_shape, contracted=(*geometry.taps, *geometry.inner))
        _write(self, planner, emit, [image, kernel], splits, product, batch)


class ConvolutionImageOperation(Operation):
    """Makes the gradient of the image from the kernel and the gradient of the result: a transposed convolution."""

    is_product, takes_padding = True, True

    def __init__(self, dy: Tensor, kernel: Tensor, geometry: Geometry, name: str = "conv_transpose") -> None:
        super().__init__([dy, kernel], [(geometry.image, same_dtype([dy, kernel]))], name=name)
        self.geometry, self._splits = geometry, Splits(self, geometry)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (dy, kernel), image = self.inputs, check_tensor(grad_ys[0])
        return [
            ConvolutionOperation(image, kernel, self.geometry).outputs[0],
            ConvolutionKernelOperation(image, dy, self.geometry).outputs[0],
        ]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return summed_axes(self._splits.under(layouts), self.outputs[0].shape)

    def lower(self, planner: Planner) -> None:
        geometry, splits = self.geometry, self._splits.under(planner.layouts)
        summed = _zeros([*geometry.sliding, *geometry.outer])
        dy = planner.read(self.inputs[0], layout_over(geometry.result, splits), summed)
        kernel = planner.read(self.inputs[1], layout_over(geometry.kernel, splits), summed)
        layout = layout_over(geometry.image, splits)
        size = layout.slice_shape(geometry.image, planner.mesh_shape)
        covers = []
        for slide in geometry.slides:
            n, axes = size[geometry.image.axis(slide.image_dim)], splits[slide.image_dim]
            cover = Cover(slide, n, axes_size(axes, planner.mesh_shape), axes)
            covers.append(cover)
            # Windows that begin on a neighbour reach into this core's image, so their dy is fetched.
            if cover.parts > 1:
                dy = read_window(planner, dy, dy.shape.axis(slide.image_dim), cover.window)
        to_result, to_kernel = _canonical(geometry, "result"), _canonical(geometry, "kernel")
        batch = _split_batch(geometry, splits)
        to_image = _restored(geometry.image, geometry.image_order, size, batch)
        sliding, sizes = _sliding(geometry, [c.padding for c in covers]), [c.size for c in covers]
        # Only a core knows which of its windows are padding, so the mask is made when the program runs.
        partly = {i: cover for i, cover in enumerate(covers) if cover.has_padding}

        def emit(core: Core, g: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
            counted = {i: cover.counted(core) for i, cover in partly.items()}
            given = to_result(g), to_kernel(w), sliding, sizes, counted
            dx = kernels.image_gradient(*given, in_bfloat16=core.convolves_bfloat16)
            for axis, cover in enumerate(covers, start=1):
                dx = cover.cut(core, dx, axis)
            return to_image(dx)

        product = _product(geometry, dy.slice_shape, kernel.slice_shape, contracted=(*geometry.taps, *geometry.outer))
        _write(self, planner, emit, [dy, kernel], splits, product, batch)


class ConvolutionKernelOperation(Operation):
    """Makes the gradient of the kernel from the image and the gradient of the result."""

    is_product, takes_padding = True, True

    def __init__(self, image: Tensor, dy: Tensor, geometry: Geometry, name: str = "conv_kernel_gradient") -> None:
        super().__init__([image, dy], [(geometry.kernel, same_dtype([image, dy]))], name=name)
        self.geometry, self._splits = geometry, Splits(self, geometry)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (image, dy), kernel = self.inputs, check_tensor(grad_ys[0])
        return [
            ConvolutionImageOperation(dy, kernel, self.geometry).outputs[0],
            ConvolutionOperation(image, kernel, self.geometry).outputs[0],
        ]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return summed_axes(self._splits.under(layouts), self.outputs[0].shape)

    def lower(self, planner: Planner) -> None:
        geometry, splits = self.geometry, self._splits.under(planner.layouts)
        image, sliding = _read_windows(planner, self.inputs[0], geometry, splits, summed=geometry.batch)
        summed = _zeros([*geometry.batch, *geometry.sliding])
        dy = planner.read(self.inputs[1], layout_over(geometry.result, splits), summed)
        to_image, to_result = _canonical(geometry, "image"), _canonical(geometry, "result")
        size = layout_over(geometry.kernel, splits).slice_shape(geometry.kernel, planner.mesh_shape)
        to_kernel, taps = (
            _restored(geometry.kernel, geometry.kernel_order, size),
            [s.kernel_size for s in geometry.slides],
        )

        partly = _partly_padding(geometry, splits, planner)

        def emit(core: Core, x: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
            counted = {i: windows(core) for i, windows in partly.items()}
            given = to_image(x), to_result(g), sliding, taps, counted
            return to_kernel(kernels.kernel_gradient_of_some(*given, in_bfloat16=core.convolves_bfloat16))

        product = _product(geometry, dy.slice_shape, size, contracted=None)
        _write(self, planner, emit, [image, dy], splits, product, _split_batch(geometry, splits))


def _read_windows(
    planner: Planner, image: Tensor, geometry: Geometry, splits: dict[str, Axes], *, summed: Sequence[str]
) -> tuple[Value, Sliding]:
    """The image with the borders that a core's windows reach over.

    Along a dimension that is not split, the kernel adds the zeros.
    """
    value = planner.read(image, layout_over(geometry.image, splits), _zeros([*geometry.sliding, *summed]))
    paddings = []
    for slide in geometry.slides:
        axis, parts = geometry.image.axis(slide.image_dim), axes_size(splits[slide.image_dim], planner.mesh_shape)
        # The kernel pads more cheaply than a copy of the image with zeros around it.
        if parts == 1:
            paddings.append((slide.before, slide.after))
            continue
        # Each core computes the same number of windows. The last core may compute some beyond the result's end.
        windows = -(-slide.result_size // parts)
        value = read_window(planner, value, axis, slide.read(windows, parts))
        paddings.append((0, 0))
    return value, _sliding(geometry, paddings)


def _partly_padding(
    geometry: Geometry, splits: dict[str, Axes], planner: Planner
) -> dict[int, Callable[[Core], tf.Tensor]]:
    """Whether a core's windows belong to the result, for dimensions where windows beyond its end read the image."""

    def windows(axes: Axes, count: int, end: int) -> Callable[[Core], tf.Tensor]:
        return lambda core: core.coordinate(axes) * count + tf.range(count) < end

    found = {}
    for i, slide in enumerate(geometry.slides):
        axes, end = splits[slide.image_dim], slide.result_size
        parts = axes_size(axes, planner.mesh_shape)
        # Windows beyond the end matter only if they still read the image. Others read zeros, which add nothing.
        if end % parts and end * slide.stride - slide.before < slide.image_size:
            found[i] = windows(axes, -(-end // parts), end)
    return found


def _split_batch(geometry: Geometry, splits: dict[str, Axes]) -> str | None:
    """The first dimension of the batch that is split, or None."""
    return next((name for name in geometry.batch if splits[name]), None)


def _zeros(names: Sequence[str]) -> Fill:
    return Fill(along=frozenset(names))


def _sliding(geometry: Geometry, paddings: Sequence[tuple[int, int]]) -> Sliding:
    strides, dilations = zip(*((s.stride, s.dilation) for s in geometry.slides), strict=True)
    return Sliding(strides, dilations, tuple(paddings))


def _write(
    operation: Operation,
    planner: Planner,
    emit: Callable[..., tf.Tensor],
    values: Sequence[Value],
    splits: dict[str, Axes],
    product: MatrixProduct,
    batch: str | None,
) -> None:
    (output,) = operation.outputs
    spec, pending = (output.shape, output.dtype, layout_over(output.shape, splits)), summed_axes(splits, output.shape)
    rows = None
    if batch is not None:
        *given, made = (x.shape.axis(batch) if x.shape.has(batch) else None for x in (*values, output))
        rows = BatchedRows(tuple(given), made, product.contracted if made is None else product.rows)
    facts = WorkFacts(products=(product,), rows=rows)
    planner.write(
        output, planner.compute("conv", emit, values, [spec], pending=pending, flops=product.flops, facts=facts)[0]
    )


def _product(
    geometry: Geometry, result: Sequence[int], kernel: Sequence[int], contracted: Sequence[str] | None
) -> MatrixProduct:
    """The matrix product for slices of these sizes, one for each group.

    The kernel is a matrix, and its dimensions `contracted` are summed. None stands for the kernel's gradient, which
    sums over positions.
    """
    sizes = {d.name: n for d, n in zip(geometry.kernel, kernel, strict=True)}
    sizes = {name: n for name, n in sizes.items() if name not in geometry.groups}
    channels = math.prod(n for name, n in sizes.items() if name in geometry.outer)
    groups = math.prod(n for d, n in zip(geometry.result, result, strict=True) if d.name in geometry.groups)
    positions = math.prod(result) // max(groups * channels, 1)
    if contracted is None:
        rows = math.prod(sizes.values()) // max(channels, 1)
        return MatrixProduct(groups, rows, channels, positions, is_convolution=not geometry.is_pointwise)
    own = math.prod(n for name, n in sizes.items() if name in contracted)
    columns = math.prod(sizes.values()) // max(own, 1)
    return MatrixProduct(groups, positions, columns, own, is_convolution=not geometry.is_pointwise)


def _canonical(geometry: Geometry, which: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function that reshapes slices of a tensor to the form that `kernels` needs."""
    shape: Shape = getattr(geometry, which)
    order: list[str] = getattr(geometry, f"{which}_order")
    permutation = [shape.axis(name) for name in order]
    spatial, inner, outer = len(geometry.slides), len(geometry.inner), len(geometry.outer)
    groups = [len(geometry.groups)] if geometry.groups else []
    runs = {
        "image": [len(geometry.batch), *[1] * spatial, *groups, inner],
        "kernel": [*[1] * spatial, *groups, inner, outer],
        "result": [len(geometry.batch), *[1] * spatial, *groups, outer],
    }[which]

    def brought(x: tf.Tensor) -> tf.Tensor:
        x = x if permutation == sorted(permutation) else transposed(x, permutation)
        sizes = iter(x.shape.as_list())
        return _reshaped(x, [math.prod(next(sizes) for _ in range(n)) for n in runs])

    return brought


def _restored(
    shape: Shape, order: Sequence[str], size: Sequence[int], batch: str | None = None
) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function that reshapes back to a slice of this size. For rows of several cores, it is larger along `batch`."""
    inside = [size[shape.axis(name)] for name in order]
    permutation = [list(order).index(d.name) for d in shape]
    elements = math.prod(inside)

    def restored(y: tf.Tensor) -> tf.Tensor:
        # A backend may compute the rows of several cores in one call. The batch is then that many times larger.
        times = y.shape.num_elements() // elements if batch is not None and elements else 1
        y = _reshaped(y, [n * times if name == batch else n for name, n in zip(order, inside, strict=True)])
        return y if permutation == sorted(permutation) else transposed(y, permutation)

    return restored


def _reshaped(x: tf.Tensor, size: list[int]) -> tf.Tensor:
    """x in this size. If x has this size already, no operation is made: a network has six reshapes per convolution."""
    return x if x.shape.as_list() == size else reshaped(x, size)
