"""Normalized weights: divided by their own length, or by their largest singular value.

Both are functions of a weight tensor: make it with `mtf.get_variable`, normalize it, and use it in a product.
"""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, ShapeError
from meshtf.layers._operands import Dims
from meshtf.layers.normalization._statistics import check_epsilon, dims_of, parameter, widened


@language_function
def weight_norm(weights: mtf.Tensor, new_dims: Dims, *, name: str | None = None) -> mtf.Tensor:
    """weights / |weights| · scale, with the length over all dimensions but `new_dims` (Salimans & Kingma 2016).

    Args:
      weights: [..., new_dims], floating.
      new_dims: the outputs: each has a vector of weights, and a length of its own.
      name: the scope of `scale` [new_dims], 1 at first; by default "weight_norm", made unique.

    Returns:
      The shape and the type of the weights.

    Raises:
      ShapeError: the weights lack a dimension, or have no others.
      DtypeError: they are not floating.

    Examples:
      >>> weights = mtf.get_variable(mesh, "w", "d_model:8 d_ff:16", initializer=mtf.RandomNormal())
      >>> mtf.layers.weight_norm(weights, mtf.Dimension("d_ff", 16)).shape
      Shape[d_model:8 d_ff:16]
    """
    new, _ = _roles(weights, new_dims)
    with mtf.variable_scope(name, default_name="weight_norm"):
        wide = widened(weights)
        length = mtf.norm(wide, output_shape=new)
        scale = parameter(wide, "scale", new, mtf.ones)
        return (wide * (scale / mtf.where(mtf.equal(length, 0.0), 1.0, length))).astype(weights.dtype)


@language_function
def spectral_norm(
    weights: mtf.Tensor,
    new_dims: Dims,
    is_training: bool,
    *,
    power_iterations: int = 1,
    epsilon: float = 1e-12,
    name: str | None = None,
) -> mtf.Tensor:
    """weights divided by their largest singular value, as a matrix of `new_dims` and the others (Miyato et al. 2018).

    Power iteration estimates the singular value: each training step continues from the last step's vector, which is a
    variable. In evaluation, the vector stays as it is.

    Args:
      weights: [..., new_dims], floating.
      new_dims: the outputs of the matrix; all other dimensions are its inputs.
      is_training: whether to improve the vector and store it.
      power_iterations: how often the vector is improved in each step.
      epsilon: the least length by which a vector is divided.
      name: the scope of `singular_vector` [new_dims], which is not trained; by default "spectral_norm", made unique.

    Returns:
      The shape and the type of the weights.

    Raises:
      ShapeError: the weights lack a dimension, or have no others.
      DtypeError: they are not floating.
      GraphError: `power_iterations` is less than 1, or the epsilon is below 0.

    Examples:
      >>> weights = mtf.get_variable(mesh, "w", "d_model:8 d_ff:16", initializer=mtf.RandomNormal())
      >>> mtf.layers.spectral_norm(weights, mtf.Dimension("d_ff", 16), is_training=True).shape
      Shape[d_model:8 d_ff:16]
    """
    new, inputs = _roles(weights, new_dims)
    check_epsilon(epsilon)
    if power_iterations < 1:
        raise GraphError(f"power_iterations must be at least 1, and is {power_iterations!r}")
    with mtf.variable_scope(name, default_name="spectral_norm"):
        wide = widened(weights)
        stored = mtf.get_variable(
            wide.mesh, "singular_vector", new, dtype=wide.dtype, initializer=mtf.RandomNormal(), trainable=False
        )
        u = _unit(mtf.read_variable(stored), epsilon)
        fixed = mtf.stop_gradient(wide)
        v = _unit(mtf.einsum([fixed, u], output_shape=inputs), epsilon)
        if is_training:
            for number in range(power_iterations):
                v = _unit(mtf.einsum([fixed, u], output_shape=inputs), epsilon) if number else v
                u = _unit(mtf.einsum([fixed, v], output_shape=new), epsilon)
            mtf.assign(stored, u)
        value = mtf.einsum([wide, mtf.stop_gradient(u), mtf.stop_gradient(v)], output_shape=[])
        return (wide / value).astype(weights.dtype)


def _roles(weights: mtf.Tensor, new_dims: Dims) -> tuple[mtf.Shape, mtf.Shape]:
    """The outputs and the inputs of a matrix."""
    new = dims_of(weights, new_dims)
    inputs = weights.shape - new
    if not inputs.dims or not new.dims:
        raise ShapeError(f"[{weights.shape}] must have both output dimensions and input dimensions")
    return new, inputs


def _unit(x: mtf.Tensor, epsilon: float) -> mtf.Tensor:
    return x / mtf.maximum(x.norm(), epsilon)
