"""Kernels: the variables that layers make with a `matrix`, and their products."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import stacked_dims
from meshtf.ops.variables.variable import VariableSpec


def is_kernel(spec: VariableSpec) -> bool:
    """Whether a variable is floating and has a `matrix`."""
    assert spec.dtype.slice_dtype is not None
    return spec.matrix is not None and spec.dtype.slice_dtype.is_floating


def of_layers(spec: VariableSpec) -> Shape:
    """The dimensions of a variable that count layers: the shape of a tensor with one number for each layer."""
    return Shape([d for d in stacked_dims(spec.layer_scopes) if spec.shape.has(d.name)])


@language_function
def kernel_product(x: Tensor, kernel: Tensor, output_shape: ShapeLike) -> Tensor:
    """x times a kernel, summed over the dimensions that `output_shape` lacks, in the dtype of x.

    This is `mtf.einsum`, unless the program quantizes activations: then it multiplies int8 or float8 numbers. Call it
    in your own layers, so that they take part in calibration and in quantization-aware training.

    Args:
      x: a floating tensor.
      kernel: a variable, as `mtf.get_variable` returned it.
      output_shape: dimensions of the result, in order.

    Raises:
      ShapeError: sizes disagree, or an operand lacks a dimension of the result.

    Examples:
      >>> kernel = mtf.get_variable(mesh, "kernel", "hidden:8 d_ff:2", matrix=("hidden", "d_ff"))
      >>> mtf.quantization.kernel_product(x, kernel, "batch d_ff").shape
      Shape[batch:4 d_ff:2]
    """
    shape = mtf.convert_to_shape(output_shape, [x.shape, kernel.shape])
    for storage in reversed(x.graph.variable_storage):
        product = storage.product(x, kernel, shape)
        if product is not None:
            return product
    return mtf.einsum([x, kernel.astype(x.dtype)], output_shape=shape)
