"""Functions that join tensors and split them along a named dimension.

Only here may one name have several sizes: the name of the dimension that is concatenated, split, sliced or padded. Its
size in the result must fit the layout, like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, names_of, shape_of
from meshtf.errors import ShapeError, counted, nearest
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.inputs.scalars import Scalar, scalar_constant, whole_number
from meshtf.ops.rearranging._concat_and_slice_operations import (
    ConcatOperation,
    SliceOperation,
    SplitOperation,
)
from meshtf.ops.rearranging._stack_operations import StackOperation, UnstackOperation


@language_function
def concat(xs: Sequence[Tensor], concat_dim_name: DimensionLike, name: str | None = None) -> Tensor:
    """Concatenates tensors along a dimension. Their sizes along it add up.

    Args:
      xs: tensors of one dtype. Their other dimensions are the same. The result has the order of the first tensor.
      concat_dim_name: a dimension of each.
      name: the operation's name.

    Raises:
      ShapeError: an operand lacks the dimension, or differs in another.

    Examples:
      >>> mtf.concat([x, mtf.zeros(mesh, "batch:4 hidden:2")], "hidden")
      concat [batch:4 hidden:10] float32
    """
    xs = _tensors(xs, "concat")
    (dim_name,) = names_of([concat_dim_name])
    sizes = [x.shape.get_dim_by_name(dim_name).size for x in xs]
    shape = xs[0].shape.resize_dimension(dim_name, sum(sizes))
    _check_alike([x.shape.resize_dimension(dim_name, sum(sizes)) for x in xs], f'beside "{dim_name}"')
    return xs[0] if len(xs) == 1 else ConcatOperation(xs, shape, dim_name, name=name or "concat").outputs[0]


@language_function
def split(
    x: Tensor, split_dim: DimensionLike, num_or_size_splits: int | Sequence[int], name: str | None = None
) -> list[Tensor]:
    """Splits x into pieces along a dimension.

    Args:
      x: a tensor.
      split_dim: a dimension of x.
      num_or_size_splits: the number of equal pieces, or the size of each piece.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, the number does not divide its size, or the sizes do not add up to it.

    Examples:
      >>> mtf.split(x, "hidden", 2)
      [split [batch:4 hidden:4] float32, split:1 [batch:4 hidden:4] float32]
      >>> [part.shape for part in mtf.split(x, "hidden", [5, 3])]
      [Shape[batch:4 hidden:5], Shape[batch:4 hidden:3]]
    """
    dim = reduced_dimension(check_tensor(x), split_dim)
    sizes = _piece_sizes(dim, num_or_size_splits)
    return [x] if len(sizes) == 1 else list(SplitOperation(x, sizes, dim.name, name or "split").outputs)


@language_function
def stack(xs: Sequence[Tensor], dim_name: DimensionLike, axis: int = 0, name: str | None = None) -> Tensor:
    """Stacks tensors along a new dimension.

    Args:
      xs: tensors of one dtype and the same dimensions, in any order; the result has the order of the first.
      dim_name: the name of the new dimension.
      axis: its position in the result, counted from the end if it is negative.
      name: the operation's name.

    Raises:
      ShapeError: the operands differ or have the dimension already, or the position is out of range.

    Examples:
      >>> mtf.stack([x, -x], "copies")
      stack [copies:2 batch:4 hidden:8] float32
      >>> mtf.stack([x, -x], "copies", axis=2)
      stack_1 [batch:4 hidden:8 copies:2] float32
    """
    xs = _tensors(xs, "stack")
    first, dim = xs[0].shape, Dimension(names_of([dim_name])[0], len(xs))
    given = shape_of([dim_name], Shape([dim]))[0]
    if given != dim:
        verb = "is" if len(xs) == 1 else "are"
        stacked = f"{counted(len(xs), 'tensor')} {verb} stacked"
        raise ShapeError(f'dimension "{dim.name}" has size {given.size}, but {stacked}')
    if first.has(dim):
        raise ShapeError(f'[{first}] has dimension "{dim.name}" already; use mtf.concat, or another name')
    _check_alike([x.shape for x in xs])
    position = whole_number(axis, "axis")
    if not -first.ndims - 1 <= position <= first.ndims:
        raise ShapeError(f"axis {axis} is not in [{-first.ndims - 1}, {first.ndims}], the places in [{first}]")
    position += first.ndims + 1 if position < 0 else 0
    shape = Shape([*first.dims[:position], dim, *first.dims[position:]])
    return StackOperation(xs, shape, dim.name, name=name or "stack").outputs[0]


@language_function
def unstack(x: Tensor, dim: DimensionLike, name: str | None = None) -> list[Tensor]:
    """The parts of x at each index of a dimension, without the dimension.

    Examples:
      >>> mtf.unstack(mtf.zeros(mesh, "copies:2 hidden:8"), "copies")
      [unstack [hidden:8] float32, unstack:1 [hidden:8] float32]
    """
    own = reduced_dimension(check_tensor(x), dim)
    return list(UnstackOperation(x, own.name, name or "unstack").outputs) if own.size else []


@language_function
def slice(x: Tensor, begin: int, size: int, slice_dim_name: DimensionLike, name: str | None = None) -> Tensor:
    """Consecutive elements of a dimension.

    Args:
      x: a tensor.
      begin: the index of the first element.
      size: the number of elements.
      slice_dim_name: the dimension.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or the slice goes beyond it.

    Examples:
      >>> value(mtf.slice(mtf.range(mesh, ("n", 5)), begin=1, size=3, slice_dim_name="n"))
      array([1, 2, 3], dtype=int32)
    """
    dim = reduced_dimension(check_tensor(x), slice_dim_name)
    begin, size = whole_number(begin, "begin"), whole_number(size, "size")
    if begin < 0 or size < 0 or begin + size > dim.size:
        raise ShapeError(f'begin {begin} and size {size} lead out of dimension "{dim.name}" of size {dim.size}')
    return x if size == dim.size else SliceOperation(x, begin, size, dim.name, name or "slice").outputs[0]


@language_function
def pad(
    x: Tensor,
    paddings: Sequence[int],
    dim_name: DimensionLike,
    name: str | None = None,
    pad_value: Scalar | None = 0,
) -> Tensor:
    """x with more elements along a dimension.

    Args:
      x: a tensor.
      paddings: the numbers of elements [before, after].
      dim_name: the dimension.
      name: the operation's name.
      pad_value: their value. None: any value, for elements that nothing uses. If x is split unevenly, they may then be
        its padding, and nothing is copied.

    Raises:
      ShapeError: x lacks the dimension, or paddings are not two numbers of at least 0.

    Examples:
      >>> value(mtf.pad(mtf.range(mesh, ("n", 2)), [1, 2], "n", pad_value=-1))
      array([-1,  0,  1, -1, -1], dtype=int32)
    """
    dim = reduced_dimension(check_tensor(x), dim_name)
    if not isinstance(paddings, Iterable):
        raise ShapeError(f"paddings must be [before, after], two numbers of at least 0, not {paddings!r}")
    numbers = [whole_number(n, "a padding") for n in paddings]
    if len(numbers) != 2 or min(numbers) < 0:
        raise ShapeError(f"paddings must be [before, after], two numbers of at least 0, not {list(paddings)}")
    fill = None if pad_value is None else scalar_constant(pad_value, x.dtype)
    if not any(numbers):
        return x
    shape = x.shape.resize_dimension(dim.name, dim.size + sum(numbers))
    pieces = [numbers[0], x, numbers[1]]
    return ConcatOperation(pieces, shape, dim.name, name=name or "pad", fill=fill).outputs[0]


def _tensors(xs: Sequence[Tensor], what: str) -> list[Tensor]:
    tensors = [check_tensor(x) for x in xs] if isinstance(xs, Iterable) else [check_tensor(xs)]
    if not tensors:
        raise ShapeError(f"{what} of no tensors; give at least one")
    same_dtype(tensors)
    return tensors


def _check_alike(shapes: Sequence[Shape], where: str = "") -> None:
    """Checks that all shapes have the dimensions of the first.

    Raises:
      ShapeError: some differ; one message says what is wrong in all of them.
    """
    first = shapes[0]
    faults = []
    for number, shape in enumerate(shapes[1:], start=1):
        for dim in first:
            if not shape.has(dim):
                faults.append(f'operand {number} lacks "{dim.name}"{nearest(dim.name, shape.dimension_names)}')
            elif shape.get_dim_by_name(dim.name) != dim:
                size = shape.get_dim_by_name(dim.name).size
                faults.append(f'operand {number} has "{dim.name}" of size {size}, and operand 0 of size {dim.size}')
        faults += [f'operand 0 lacks "{d.name}" of operand {number}' for d in shape if not first.has(d)]
    if faults:
        raise ShapeError(f"the operands must have the same dimensions {where}".rstrip() + f": {'; '.join(faults)}")


def _piece_sizes(dim: Dimension, num_or_size_splits: int | Sequence[int]) -> list[int]:
    if isinstance(num_or_size_splits, Sequence):
        sizes = [whole_number(n, "a size") for n in num_or_size_splits]
        if not sizes or min(sizes) < 0 or sum(sizes) != dim.size:
            raise ShapeError(f'sizes {sizes} do not add up to dimension "{dim.name}" of size {dim.size}')
        return sizes
    number = whole_number(num_or_size_splits, "the number of pieces")
    if number < 1 or dim.size % number:
        raise ShapeError(f'dimension "{dim.name}" of size {dim.size} does not divide into {number} equal pieces')
    return [dim.size // number] * number
