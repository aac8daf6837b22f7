"""Dense layers. Their variables have the original's names and dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape, dims_of
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

OneOrMore: TypeAlias = "language.Dimension | Sequence[language.Dimension]"
Activation: TypeAlias = Callable[[Tensor], Tensor]


class DenseInitializer:
    """Makes kernel initializers.

    A call with the dimensions summed over and the new dimensions returns a TensorFlow initializer.
    """

    def __call__(self, reduced_dims: Sequence[language.Dimension], new_dims: Sequence[language.Dimension]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must return an initializer of TensorFlow's when called")


class VarianceScalingInitializer(DenseInitializer):
    """Draws numbers with variance scale / n.

    n is the size of the dimensions summed over ("fan_in"), of the new ones ("fan_out"), or their mean ("fan_avg").

    Args:
      scale: a factor of the variance.
      mode: "fan_in", "fan_out" or "fan_avg".
      distribution: "normal" or "uniform". The normal distribution is truncated at two standard deviations, and the
        variance is not corrected for this.

    Raises:
      ShapeError: `mode` or `distribution` is another text.
    """

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "normal") -> None:
        if mode.lower() not in ("fan_in", "fan_out", "fan_avg"):
            raise ShapeError(f'mode must be "fan_in", "fan_out" or "fan_avg", not {mode!r}')
        if distribution.lower() not in ("normal", "uniform"):
            raise ShapeError(f'distribution must be "normal" or "uniform", not {distribution!r}')
        self.scale, self.mode, self.distribution = scale, mode.lower(), distribution.lower()

    def __call__(self, reduced_dims: Sequence[language.Dimension], new_dims: Sequence[language.Dimension]) -> Any:
        fan_in, fan_out = (math.prod(d.size for d in dims) for dims in (reduced_dims, new_dims))
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        variance = self.scale / max(1.0, n)
        if self.distribution == "normal":
            return tf.compat.v1.truncated_normal_initializer(stddev=math.sqrt(variance))
        limit = math.sqrt(3.0 * variance)
        return tf.compat.v1.random_uniform_initializer(-limit, limit)


def dense(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    new_dims: OneOrMore,
    reduced_dims: OneOrMore | None = None,
    expert_dims: OneOrMore | None = None,
    use_bias: bool = True,
    activation: Activation | None = None,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    variable_dtype: VariableDType | None = None,
    kernel_initializer: Any = None,
    kernel_weights: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """Multiplies x by a kernel and adds a bias: `<name>/kernel` [expert_dims, reduced_dims, new_dims], `<name>/bias`.

    If a dimension summed over has the name of a new one, the kernel calls it `_<name>`. Without a name the kernel is in
    the scope `dense` and the bias in the next one, `dense_1`.

    Args:
      x: [..., reduced_dims].
      new_dims: one dimension, or several.
      reduced_dims: the dimensions summed over. By default the last one.
      expert_dims: dimensions of x. Each of their elements has a kernel of its own.
      use_bias: whether to add a bias.
      activation: a function that is applied to the result.
      master_dtype: the kernel's dtype in files.
      slice_dtype: the kernel's dtype on the mesh.
      variable_dtype: all dtypes of the variables, in place of these two and the dtype of x.
      kernel_initializer: a `DenseInitializer`, or an initializer of TensorFlow's.
      kernel_weights: a kernel to use in place of the variable.
      name: the scope's name.

    Returns:
      [..., new_dims].
    """
    made, experts = dims_of(new_dims), dims_of([] if expert_dims is None else expert_dims)
    summed = dims_of(x.shape.dims[-1:] if reduced_dims is None else reduced_dims)
    kept = [d for d in x.shape if d not in summed]
    names = {d.name for d in made}
    for i, dim in enumerate(summed):
        if dim.name in names:
            summed[i] = Dimension(f"_{dim.name}", dim.size)
            x = mtf.rename_dimension(x, dim.name, summed[i].name)
    dtype = variable_dtype or VariableDType(master_dtype, slice_dtype, x.dtype)
    if kernel_weights is None:
        kernel_weights = get_dense_kernel_weights(
            x, made, summed, experts, kernel_initializer, name=name, variable_dtype=dtype
        )
    with tf.compat.v1.variable_scope(name, default_name="dense"):  # also without a bias, for the names of later layers
        y = mtf.einsum([x, mtf.cast(kernel_weights, x.dtype)], Shape([*kept, *made]))
        if use_bias:
            start = tf.compat.v1.zeros_initializer()
            bias = get_variable(x.mesh, "bias", Shape([*experts, *made]), dtype, initializer=start)
            y += mtf.cast(bias, x.dtype)
        return y if activation is None else activation(y)


def get_dense_kernel_weights(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    new_dims: Sequence[language.Dimension],
    reduced_dims: Sequence[language.Dimension],
    expert_dims: Sequence[language.Dimension],
    kernel_initializer: Any = None,
    name: str | None = None,
    variable_dtype: VariableDType | None = None,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
) -> Tensor:
    """The kernel variable of a dense layer, [expert_dims, reduced_dims, new_dims]."""
    initializer = VarianceScalingInitializer() if kernel_initializer is None else kernel_initializer
    if isinstance(initializer, DenseInitializer):
        initializer = initializer(reduced_dims, new_dims)
    shape = Shape([*expert_dims, *reduced_dims, *new_dims])
    with tf.compat.v1.variable_scope(name, default_name="dense"):
        dtype = variable_dtype or VariableDType(master_dtype, slice_dtype, x.dtype)
        return get_variable(x.mesh, "kernel", shape, dtype, initializer=initializer)


def dense_product(
    x: Tensor,
    reduced_dims: Sequence[language.Dimension],
    new_dims: OneOrMore,
    activation_functions: Sequence[Activation | str | None] | str | Activation | None = None,
    name: str = "dense_product",
    **kwargs: Any,
) -> Tensor:
    """Multiplies several dense layers of x, each with its own activation: a function, the name of one, or "linear"."""
    given = activation_functions
    listed: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
    factors = []
    for i, activation in enumerate(listed):
        if isinstance(activation, str):
            activation = None if activation == "linear" else getattr(mtf, activation)
        own = f"{name}_{i}" if len(listed) > 1 else name
        y = dense(x, new_dims, reduced_dims, activation=activation, name=own, **kwargs)
        factors.append(y)
    product = factors[0]
    for factor in factors[1:]:
        product *= factor
    return product


def dense_relu_dense(
    x: Tensor,
    hidden_channels: language.Dimension,
    is_training: bool,
    dropout: float = 0.0,
    dropout_broadcast_dims: Sequence[language.Dimension] | None = None,
    master_dtype: tf.DType = tf.float32,
    slice_dtype: tf.DType = tf.float32,
    name: str | None = None,
) -> Tensor:
    """Applies a hidden layer `wi` with ReLU and dropout, then `wo` back to the last dimension of x.

    There are no biases.
    """
    dtypes = {"master_dtype": master_dtype, "slice_dtype": slice_dtype}
    with tf.compat.v1.variable_scope(name, default_name="dense_relu_dense"):
        h = dense(x, hidden_channels, use_bias=False, activation=mtf.relu, name="wi", **dtypes)
        h = mtf.dropout(h, is_training, rate=dropout, noise_shape=without_dims(h.shape, dropout_broadcast_dims))
        return dense(h, x.shape.dims[-1], use_bias=False, name="wo", **dtypes)


def without_dims(shape: language.Shape, dims: Sequence[language.Dimension] | None) -> language.Shape:
    """A shape without some dimensions. The shape may lack them already."""
    return Shape([d for d in shape if d not in (dims or ())])
