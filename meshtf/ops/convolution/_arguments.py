"""Checks the arguments of convolutions and pooling."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.dimension import Dimension, Shape, ShapeLike, convert_to_shape
from meshtf.errors import DtypeError, ShapeError, nearest
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra.broadcasting import size_clash
from meshtf.ops.convolution._geometry import Geometry, Slide, slide, transposed_slide

Steps: TypeAlias = "int | Sequence[int] | Mapping[str, int] | None"
"""One number for all spatial dimensions, one for each in order, or some by name. The default is 1."""


def operands(conv_input: Tensor, conv_filter: Tensor) -> tuple[Tensor, Tensor]:
    image, kernel = check_tensor(conv_input, "conv_input"), check_tensor(conv_filter, "conv_filter")
    if same_dtype([image, kernel]) == tf.bool or image.dtype.is_complex:
        raise DtypeError(f"{image.dtype.name} cannot be convolved; convert with mtf.cast")
    return image, kernel


def windows_by_order(image: Shape, kernel: Shape, count: int, ndims: int | None) -> dict[str, str]:
    """The filter's dimension for each dimension of the image along which windows slide, by their positions."""
    if image.ndims < count + 1:
        raise ShapeError(f"[{image}] must have {count} spatial dimensions and channels, in this order, at its end")
    if kernel.ndims != ndims if ndims else kernel.ndims < count + 1:
        wanted = (
            f"{count} spatial dimensions and two of channels" if ndims else f"{count} spatial dimensions and channels"
        )
        raise ShapeError(f"the filter [{kernel}] must have {wanted}, in this order")
    names = image.dimension_names
    return dict(zip(names[-count - 1 : -1], kernel.dimension_names[:count], strict=True))


def geometry_by_order(image: Shape, kernel: Shape, count: int, steps: tuple[Steps, Steps], padding: str) -> Geometry:
    """The geometry of [.., spatial.., in] convolved with [spatial.., in, out]. `steps` are strides and dilations."""
    windows = windows_by_order(image, kernel, count, count + 2)
    check_channels(image, kernel.dims[-2], "the filter's last but one")
    slides = slides_of(slide, image, kernel, list(windows.items()), steps, padding)
    check_shared(image, kernel)
    return Geometry(image, kernel, result_shape(image, kernel, slides, None), slides)


def transposed_geometry_by_order(
    result: Shape, kernel: Shape, count: int, steps: tuple[Steps, Steps], padding: str
) -> Geometry:
    """The geometry of a convolution with [spatial.., out, in], from its result [.., spatial.., in] alone."""
    windows = windows_by_order(result, kernel, count, count + 2)
    check_channels(result, kernel[-1], "the filter's last")
    slides = slides_of(transposed_slide, result, kernel, list(windows.items()), steps, padding)
    check_shared(result, kernel)
    outer = kernel[count]
    if result.has(outer):
        raise ShapeError(f'the filter makes "{outer.name}", which [{result}] already has; rename one of them')
    image = Shape([*result.dims[:-1], outer])
    for s in slides:
        image = image.resize_dimension(s.image_dim, s.image_size)
    return Geometry(image, kernel, result, slides)


def check_channels(image: Shape, inner: Dimension, place: str) -> None:
    if image[-1].name != inner.name:
        raise ShapeError(
            f'{place} dimension must be the channels "{image[-1].name}", the last of [{image}], and is "{inner.name}"'
        )


def window_pairs(windows: Mapping[str, str], image: Shape, kernel: Shape) -> list[tuple[str, str]]:
    if not isinstance(windows, Mapping) or not 1 <= len(windows) <= 3:
        raise ShapeError(f"windows must name one to three dimensions, as {{image's: filter's}}, and are {windows!r}")
    pairs = [(_name(a), _name(b)) for a, b in windows.items()]
    for image_dim, kernel_dim in pairs:
        image.axis(image_dim)
        kernel.axis(kernel_dim)
    return pairs


def slides_of(
    make: Callable[..., Slide],
    image: Shape,
    kernel: Shape,
    pairs: Sequence[tuple[str, str]],
    steps: tuple[Steps, Steps],
    padding: str,
) -> tuple[Slide, ...]:
    check_padding(padding)
    names = [a for a, _ in pairs]
    strides, dilations = numbers_by_name(steps[0], names, "strides"), numbers_by_name(steps[1], names, "dilations")
    found = []
    for image_dim, kernel_dim in pairs:
        if image.has(kernel_dim):
            raise ShapeError(
                f'the filter extends along "{image_dim}" under the name "{kernel_dim}", which the image has too; '
                f"rename the filter's (mtf.rename_dimension)"
            )
        sizes = image.get_dim_by_name(image_dim).size, kernel.get_dim_by_name(kernel_dim).size
        if not all(sizes):
            raise ShapeError(f'"{image_dim}" of size {sizes[0]} has no windows of {sizes[1]}; both must be at least 1')
        steps_here = {"stride": strides[image_dim], "dilation": dilations[image_dim]}
        found.append(make(image_dim, kernel_dim, sizes, padding, **steps_here))
    return tuple(found)


def check_padding(padding: str) -> None:
    """Raises ShapeError unless it is the name of a kind of padding."""
    if padding not in ("SAME", "VALID", "SYMMETRIC"):
        raise ShapeError(f'padding must be "SAME", "VALID" or "SYMMETRIC", not {padding!r}')


def check_shared(image: Shape, kernel: Shape) -> None:
    for dim in kernel:
        if image.has(dim) and image.get_dim_by_name(dim.name).size != dim.size:
            raise ShapeError(size_clash(dim.name, image.get_dim_by_name(dim.name).size, dim.size))


def result_shape(image: Shape, kernel: Shape, slides: Sequence[Slide], output_shape: ShapeLike | None) -> Shape:
    sizes, taps = {s.image_dim: s.result_size for s in slides}, {s.kernel_dim for s in slides}
    for s in slides:
        if kernel.has(s.image_dim):
            raise ShapeError(f'windows slide along "{s.image_dim}", which the filter has too; rename the filter\'s')
    # Sizes of the result: windows replace the image's elements, and taps are summed.
    known = {d.name: d.size for d in (*kernel, *image) if d.name not in taps} | sizes
    if output_shape is None:
        names = [d.name for d in image if not kernel.has(d)] + [d.name for d in kernel if not image.has(d)]
        return Shape([Dimension(n, known[n]) for n in names if n not in taps])
    wanted = convert_to_shape(output_shape, Shape(known.items()))
    for dim in wanted:
        if dim.name not in known:
            raise ShapeError(f'output dimension "{dim.name}" is in neither operand{nearest(dim.name, known)}')
        if dim.name not in sizes and known[dim.name] != dim.size:
            raise ShapeError(
                f'output dimension "{dim.name}" has size {dim.size}, but {known[dim.name]} in the operands'
            )
    for name in known:
        if not wanted.has(name) and not (image.has(name) and kernel.has(name)):
            raise ShapeError(
                f'output_shape [{wanted}] lacks "{name}", which one operand has; sum it with mtf.reduce_sum'
            )
    return Shape([Dimension(d.name, known[d.name]) for d in wanted])


def numbers_by_name(steps: Steps, names: Sequence[str], what: str) -> dict[str, int]:
    """A number of at least 1 for each name."""
    if steps is None:
        return dict.fromkeys(names, 1)
    if isinstance(steps, Mapping):
        given = {_name(k): v for k, v in steps.items()}
        for name in given:
            if name not in names:
                raise ShapeError(f'{what} name "{name}", along which no window slides{nearest(name, names)}')
        found = {name: given.get(name, 1) for name in names}
    elif isinstance(steps, Sequence):
        found = dict(zip(names, _spatial_part(list(steps), len(names), what), strict=True))
    else:
        found = dict.fromkeys(names, steps)
    numbers = {name: _whole_number(n, what) for name, n in found.items()}
    if min(numbers.values()) < 1:
        raise ShapeError(f"{what} must be at least 1, and are {list(numbers.values())}")
    return numbers


def _spatial_part(steps: list[int], count: int, what: str) -> list[int]:
    """The steps of the spatial dimensions, without the steps of 1 for batch and channels."""
    if len(steps) == count + 2 and steps[0] == steps[-1] == 1:
        return steps[1:-1]
    if len(steps) != count:
        raise ShapeError(f"{what} must be one number, or {count}, one for each spatial dimension, not {steps}")
    return steps


def _whole_number(x: object, what: str) -> int:
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"{what} must be whole numbers known now, not {x!r}") from None


def _name(dim: object) -> str:
    return dim.name if isinstance(dim, Dimension) else str(dim)
