"""The feed-forward layer of Transformers."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import DimensionLike, Dims
from meshtf.layers.activations import Activation
from meshtf.layers.dense import dense, dense_product
from meshtf.layers.initializers import DenseInitializer


@language_function
def feed_forward(
    x: mtf.Tensor,
    d_ff: DimensionLike,
    is_training: bool,
    *,
    activation_functions: Sequence[Activation] | Activation = "relu",
    use_bias: bool = False,
    dropout_rate: float = 0.0,
    kernel_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """wo · dropout(activation(wi · x)), along the last dimension of x (Vaswani et al. 2017; gated: Shazeer 2020).

    Args:
      x: [..., d_model].
      d_ff: the dimension between the two products.
      is_training: whether dropout drops.
      activation_functions: one, or one for each factor of a gated form, as in `dense_product`: ("gelu", "linear") is
        GEGLU and ("swish", "linear") is SwiGLU.
      use_bias: whether both products add a bias.
      dropout_rate: the share of [..., d_ff] that is dropped.
      kernel_initializer: the initializer of all kernels, as in `dense`.
      name: the scope of `wi/kernel` (`wi_0/kernel`, ... for several factors), `wo/kernel` and the biases; by
        default "feed_forward", made unique.

    Returns:
      The shape of x.

    Raises:
      GraphError: an activation has no such name, or the rate is not in [0, 1).
      ShapeError: x has a dimension with the name of `d_ff`.

    Examples:
      >>> mtf.layers.feed_forward(x, "d_ff:32", is_training=True, dropout_rate=0.1).shape
      Shape[batch:4 hidden:8]
      >>> [(v.full_name, v.shape) for v in mesh.graph.trainable_variables]
      [('feed_forward/wi/kernel', Shape[hidden:8 d_ff:32]), ('feed_forward/wo/kernel', Shape[d_ff:32 hidden:8])]
    """
    d_model = x.shape[-1]
    with mtf.variable_scope(name, default_name="feed_forward"):
        h = dense_product(
            x,
            [d_model],
            d_ff,
            activation_functions,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            name="wi",
        )
        h = mtf.dropout(h, is_training, rate=dropout_rate)
        return dense(h, d_model, use_bias=use_bias, kernel_initializer=kernel_initializer, name="wo")


@language_function
def dense_relu_dense(
    x: mtf.Tensor,
    hidden_channels: DimensionLike,
    is_training: bool,
    dropout: float = 0.0,
    dropout_broadcast_dims: Dims = (),
    name: str | None = None,
) -> mtf.Tensor:
    """wo · dropout(relu(wi · x)), along the last dimension of x, without biases.

    Args:
      x: [..., in], floating.
      hidden_channels: the dimension between the two layers.
      is_training: whether elements are dropped.
      dropout: the probability that an element is dropped.
      dropout_broadcast_dims: dimensions along which elements are dropped together.
      name: the scope of the two layers.

    Examples:
      >>> mtf.layers.dense_relu_dense(x, "d_ff:32", is_training=True, dropout=0.1).shape
      Shape[batch:4 hidden:8]
    """
    d_model = x.shape[-1]
    with mtf.variable_scope(name, default_name="dense_relu_dense"):
        h = dense(x, hidden_channels, use_bias=False, activation=mtf.relu, name="wi")
        h = mtf.dropout(h, is_training, rate=dropout, noise_shape=h.shape - h.shape.only(dropout_broadcast_dims))
        return dense(h, d_model, use_bias=False, name="wo")
