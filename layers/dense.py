"""Dense layers: matrix products with biases and activations."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.layers._operands import Dims, checked_operand
from meshtf.layers.activations import Activation, activation_function
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer


@language_function
def dense(  # noqa: PLR0913  # the original's parameters, and two of ours
    x: mtf.Tensor,
    new_dims: Dims,
    reduced_dims: Dims | None = None,
    *,
    expert_dims: Dims | None = None,
    use_bias: bool = True,
    activation: Activation = None,
    kernel_initializer: DenseInitializer | None = None,
    unpadded_dims: Dims = (),
    name: str | None = None,
) -> mtf.Tensor:
    """activation(x . kernel + bias), summed over `reduced_dims`.

    If a reduced dimension has the name of a new one, it is renamed with a leading underscore, in x and in the kernel. A
    layout rule for the name then splits one side of the kernel and not both.

    Args:
      x: [..., expert_dims, reduced_dims].
      new_dims: dimensions of the result that take the place of `reduced_dims`: one, a list, or "heads:2 d_kv:4".
      reduced_dims: one or several dimensions of x; by default its last.
      expert_dims: dimensions of x along which every position has a kernel and a bias of its own.
      use_bias: whether a bias [expert_dims, new_dims], zero at first, is added.
      activation: applied to the result: a function, or its name. With `unpadded_dims` it must be elementwise.
      kernel_initializer: by default normal of variance 1 / (product of the reduced sizes), cut at two standard
        deviations; see `VarianceScalingInitializer`.
      unpadded_dims: the true sizes of new and reduced dimensions that are padded, such as "d_ff:1000" if `new_dims` is
        "d_ff:1024". Beyond them, kernel, bias and result are zeros, and values of x do not count. Checkpoints have the
        true sizes, except for int4 kernels and for scales of groups, which meshtf-quantize writes.
      name: the scope of `kernel` and `bias`; by default "dense", made unique.

    Returns:
      [dimensions of x without reduced_dims, new_dims].

    Raises:
      DtypeError: x is of integers.
      GraphError: `kernel_initializer` is no function of (reduced_dims, new_dims).
      ShapeError: x lacks a dimension; or the kernel lacks a dimension of `unpadded_dims`, or has a smaller one.

    Examples:
      >>> mtf.layers.dense(x, "d_ff:32", activation="relu").shape
      Shape[batch:4 d_ff:32]
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('dense/kernel', Shape[hidden:8 d_ff:32]), ('dense/bias', Shape[d_ff:32])]
    """
    check_not_whole(x)
    new, experts = mtf.convert_to_shape(new_dims, x.shape), x.shape.only([] if expert_dims is None else expert_dims)
    given = x.shape[-1:] if reduced_dims is None else x.shape.only(reduced_dims)
    true_reduced, true_new = _true_shapes(given, new, unpadded_dims)
    x, reduced = _without_clash(x, given, new)
    true_reduced = mtf.Shape([(d.name, true.size) for d, true in zip(reduced, true_reduced, strict=True)])
    x = _without_padding(x, reduced, true_reduced)
    function = activation_function(activation)
    initializer = _checked(kernel_initializer)(true_reduced, true_new)
    with mtf.variable_scope(name, default_name="dense"):
        kernel = mtf.get_variable(
            x.mesh,
            "kernel",
            experts + reduced + new,
            initializer=initializer,
            unpadded_shape=experts + true_reduced + true_new,
            matrix=(reduced, new),
        )
        y = mtf.quantization.kernel_product(x, kernel, x.shape - reduced + new)
        if use_bias:
            bias = mtf.get_variable(
                x.mesh, "bias", experts + new, initializer=mtf.zeros, unpadded_shape=experts + true_new
            )
            y += bias.astype(x.dtype)
        return _without_padding(function(y), new, true_new)


def _true_shapes(reduced: mtf.Shape, new: mtf.Shape, unpadded_dims: Dims) -> tuple[mtf.Shape, mtf.Shape]:
    """The reduced and the new dimensions with their sizes without padding."""
    true = {d.name: d for d in mtf.convert_to_shape(unpadded_dims, [new, reduced])}
    for dim in true.values():
        sizes = [side[dim.name].size for side in (reduced, new) if side.has(dim.name)]
        if dim.size > min(sizes, default=0):
            raise ShapeError(
                f"unpadded_dims has [{dim}], and the kernel sums over [{reduced}] and makes [{new}]; give dimensions "
                f"that it has, with sizes that are no larger"
            )
    return mtf.Shape([true.get(d.name, d) for d in reduced]), mtf.Shape([true.get(d.name, d) for d in new])


def _without_padding(x: mtf.Tensor, padded: mtf.Shape, true: mtf.Shape) -> mtf.Tensor:
    """Replaces the padding by zeros, whose gradient is zero. Weights that meet it are then not trained."""
    for dim, own in zip(padded, true, strict=True):
        if own.size < dim.size:
            x = mtf.where(mtf.range(x.mesh, dim, tf.int32) < own.size, x, 0, output_shape=x.shape)
    return x


def _checked(kernel_initializer: DenseInitializer | None) -> DenseInitializer:
    if kernel_initializer is None:
        return VarianceScalingInitializer()
    # A class, and an initializer of variables, whose first parameter is the mesh, are given by mistake.
    is_function = callable(kernel_initializer) and not isinstance(kernel_initializer, type)
    if not is_function or "mesh" in inspect.signature(kernel_initializer).parameters:
        raise GraphError(
            "kernel_initializer must be a function of (reduced_dims, new_dims), such as "
            f"mtf.layers.NormalInitializer(stddev=0.02), and is {kernel_initializer!r}"
        )
    return kernel_initializer


def check_not_whole(x: mtf.Tensor) -> None:
    """Checks that an operand is floating. A kernel that is cast to integers would lose its weights.

    Raises:
      DtypeError: it is not.
    """
    x = checked_operand(x, "the operand")
    if x.dtype.is_integer or x.dtype.is_bool:
        raise DtypeError(f"a floating tensor is needed, not {x.dtype.name}; convert it with mtf.cast")


@language_function
def dense_product(  # noqa: PLR0913  # those of `dense`
    x: mtf.Tensor,
    reduced_dims: Dims,
    new_dims: Dims,
    activation_functions: Sequence[Activation] | Activation = None,
    *,
    use_bias: bool = True,
    kernel_initializer: DenseInitializer | None = None,
    expert_dims: Dims | None = None,
    unpadded_dims: Dims = (),
    name: str = "dense_product",
) -> mtf.Tensor:
    """The product of dense layers of one input, each with an activation of its own: a gated layer (Shazeer 2020).

    ("gelu", "linear") is GEGLU, ("swish", "linear") is SwiGLU, ("sigmoid", "linear") is GLU.

    Args:
      x: [..., expert_dims, reduced_dims].
      reduced_dims: dimensions of x.
      new_dims: dimensions of the result that take the place of `reduced_dims`.
      activation_functions: each factor's function or name; with only one it is a dense layer.
      use_bias: whether each factor has a bias [expert_dims, new_dims].
      kernel_initializer: each factor's initializer, as in `dense`.
      expert_dims: as in `dense`.
      unpadded_dims: as in `dense`.
      name: the scope of the factor. With several factors, _0, _1 and so on are added.

    Returns:
      [dimensions of x without reduced_dims, new_dims].

    Raises:
      GraphError: an activation has no such name, or there is none.
      ShapeError: x lacks a dimension.

    Examples:
      >>> mtf.layers.dense_product(x, "hidden", "d_ff:32", ("gelu", "linear")).shape
      Shape[batch:4 d_ff:32]
    """
    activations = _one_or_each(activation_functions)
    if not activations:
        raise GraphError('activation_functions is empty; give one for each factor, such as ("gelu", "linear")')
    factors = [
        dense(
            x,
            new_dims,
            reduced_dims,
            expert_dims=expert_dims,
            use_bias=use_bias,
            activation=activation,
            kernel_initializer=kernel_initializer,
            unpadded_dims=unpadded_dims,
            name=f"{name}_{number}" if len(activations) > 1 else name,
        )
        for number, activation in enumerate(activations)
    ]
    product = factors[0]
    for factor in factors[1:]:
        product *= factor
    return product


def _one_or_each(activations: Sequence[Activation] | Activation) -> list[Activation]:
    if activations is None or isinstance(activations, str) or callable(activations):
        return [activations]
    return list(activations)


def _without_clash(x: mtf.Tensor, reduced: mtf.Shape, new: mtf.Shape) -> tuple[mtf.Tensor, mtf.Shape]:
    """x and the reduced dimensions, renamed where a new dimension has their name."""
    for dim in reduced:
        if new.has(dim.name):
            inner_name = f"_{dim.name}"
            x = x.rename({dim.name: inner_name})
            reduced = reduced.rename_dimension(dim.name, inner_name)
    return x, reduced
