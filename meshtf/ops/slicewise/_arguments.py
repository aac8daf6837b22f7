"""Checks the arguments of `slicewise` and similar operations, before the function runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Dimension, Shape, convert_to_shape
from meshtf.errors import GraphError, ShapeError, counted, nearest
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.tensor import Tensor, check_tensors
from meshtf.ops.algebra.broadcasting import union


def check_operands(tf_fn: object, xs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    if not callable(tf_fn):
        raise GraphError(f"tf_fn must be a function of tf.Tensors, not {type(tf_fn).__name__}")
    operands = check_tensors(xs)
    if not operands:
        raise GraphError("at least one operand is needed; for a function without operands, give mtf.zeros(mesh, [])")
    union([x.shape for x in operands])
    return operands


def outputs_of(operands: Sequence[Tensor], shapes: Any, dtypes: Any) -> tuple[list[tuple[Shape, tf.DType]], bool]:
    """The shape and the dtype of each output, and whether they were given as lists."""
    shape_list = list(shapes) if _is_list_of_shapes(shapes) else None
    dtype_list = list(dtypes) if isinstance(dtypes, list | tuple) else None
    count = len(shape_list or dtype_list or [None])
    shape_list = shape_list or [shapes] * count
    dtype_list = dtype_list or [dtypes] * count
    if len(shape_list) != len(dtype_list):
        raise ShapeError(f"{len(shape_list)} output shapes were given and {counted(len(dtype_list), 'output dtype')}")
    first, known = operands[0], [x.shape for x in operands]
    named = [first.shape if s is None else convert_to_shape(s, known) for s in shape_list]
    types = [first.dtype if d is None else dtype_of(d) for d in dtype_list]
    return list(zip(named, types, strict=True)), _is_list_of_shapes(shapes) or isinstance(dtypes, list | tuple)


def _is_list_of_shapes(x: object) -> bool:
    """Whether x is a list of shapes, and not one shape as a list of dimensions or (name, size) pairs."""
    if not isinstance(x, list | tuple) or isinstance(x, Shape) or not x:
        return False
    return all(s is None or isinstance(s, Shape | str | list) or (isinstance(s, tuple) and not _is_pair(s)) for s in x)


def _is_pair(x: tuple[Any, ...]) -> bool:
    return len(x) == 2 and isinstance(x[0], str) and not isinstance(x[1], str | Dimension)


def check_splittable(dims: Sequence[str], inputs: Sequence[Shape], outputs: Sequence[Shape]) -> None:
    everything = union(inputs)
    for name in dims:
        if not everything.has(name):
            raise ShapeError(
                f'splittable dimension "{name}" is in no operand{nearest(name, everything.dimension_names)}'
            )
        size = everything.get_dim_by_name(name).size
        for shape in outputs:
            if not shape.has(name):
                raise ShapeError(
                    f'splittable dimension "{name}" is not in output [{shape}]: each core would compute that output '
                    f"from its own part of {name}; leave it out of splittable_dims"
                )
            if shape.get_dim_by_name(name).size != size:
                raise ShapeError(
                    f'splittable dimension "{name}" has size {size} in the operands and '
                    f"{shape.get_dim_by_name(name).size} in output [{shape}]; leave it out of splittable_dims"
                )


def check_grad_function(grad_function: object) -> None:
    if not (grad_function is None or grad_function == 0 or callable(grad_function)):
        raise GraphError(
            "grad_function must be a function of (operation, *dys), 0 for no gradient, or None for TensorFlow's own, "
            f"not {grad_function!r}"
        )
