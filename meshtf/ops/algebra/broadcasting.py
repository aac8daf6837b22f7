"""Broadcasting by name: the shapes of results, and the alignment of local slices.

x [batch:4 hidden:8] + bias [hidden:8]             -> [batch:4 hidden:8]       the longest operand has all
rows [rows:2] * columns [columns:3]                -> [rows:2 columns:3]       the first, then new dimensions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape, ShapeLike, convert_to_shape
from meshtf.errors import ShapeError


def union(shapes: Sequence[Shape]) -> Shape:
    """All dimensions, in order of first appearance.

    Raises:
      ShapeError: one name has two sizes.
    """
    dims: dict[str, Dimension] = {}
    for shape in shapes:
        for dim in shape:
            first = dims.setdefault(dim.name, dim)
            if first.size != dim.size:
                raise ShapeError(size_clash(dim.name, first.size, dim.size))
    return Shape(dims.values())


def size_clash(name: str, first: int, second: int) -> str:
    return (
        f'dimension "{name}" has size {first} in one operand and {second} in another; rename one of them '
        f"(mtf.rename_dimension) or make the sizes equal"
    )


def broadcast_shape(shapes: Sequence[Shape], output_shape: ShapeLike | None = None) -> Shape:
    """The shape of an elementwise result.

    It is `output_shape`, if given. Otherwise, it is the shape that has all others as subsequences. If there is none,
    it has the dimensions of the first operand, followed by the new dimensions of the others.
    """
    everything = union(shapes)
    wanted = convert_to_shape(output_shape, everything)
    if wanted is not None:
        for dim in everything:
            wanted.axis(dim)
        return wanted
    longest = max(shapes, key=lambda s: s.ndims)
    if all(_is_subsequence(s, longest) for s in shapes):
        return longest
    return everything


def aligner(source: Shape, target: Shape) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function that makes slices over `source` broadcast against slices over `target`.

    One of a slice's sizes may be unknown.
    """
    order = [d.name for d in target if source.has(d.name)]
    permutation = [source.axis(name) for name in order]
    is_ordered = permutation == sorted(permutation)
    leading = next((i for i, d in enumerate(target) if source.has(d.name)), target.ndims)
    has_gaps = [d.name for d in target.dims[leading:]] != order

    def align(x: tf.Tensor) -> tf.Tensor:
        if not is_ordered:
            x = tf.transpose(x, np.array(permutation, np.int32))
        if has_gaps and order:
            sizes = iter(-1 if size is None else size for size in x.shape.as_list())
            aligned = [next(sizes) if d.name in order else 1 for d in target.dims[leading:]]
            x = tf.reshape(x, np.array(aligned, np.int32))
        return x

    return align


def _is_subsequence(short: Shape, long: Shape) -> bool:
    remaining = iter(long)
    return all(dim in remaining for dim in short)
