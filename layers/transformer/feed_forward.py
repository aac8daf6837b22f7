"""The feed-forward sublayer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_fractions, check_kinds, check_sizes
from meshtf.layers.activations import activation_function
from meshtf.layers.dense import dense, dense_product
from meshtf.layers.initializers import DenseInitializer
from meshtf.layers.transformer.context import Context, DecodingSpace
from meshtf.layers.transformer.dropout import dropped


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class FeedForward:
    """wo · dropout(activation(wi · x)).

    Attributes:
      d_ff: the size of the dimension between the two products.
      activation: an activation's name, or two for a gated form: ("gelu", "linear") is GEGLU, ("swish", "linear")
        SwiGLU (Shazeer 2020).
      use_bias: whether both products add a bias.
      dropout_rate: the share that is dropped between the products.
      dropout_broadcast_dims: names of dimensions along which elements are dropped together, such as ("length",).
      kernel_initializer: the initializer of wi, and of wo unless that has its own.
      output_initializer: the initializer of wo.
      multiple: the dimension `d_ff` is padded to a multiple of this number. Checkpoints and counts have the true size,
        except for int4 kernels and for scales of groups.
      name: the scope of `wi` and `wo`.
    """

    d_ff: int
    activation: str | Sequence[str] = "relu"
    use_bias: bool = False
    dropout_rate: float = 0.0
    dropout_broadcast_dims: Sequence[str] = ()
    kernel_initializer: DenseInitializer | None = None
    output_initializer: DenseInitializer | None = None
    multiple: int = 1
    name: str = "feed_forward"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "d_ff", "multiple")
        check_fractions(self, "dropout_rate")
        for each in [self.activation] if isinstance(self.activation, str) else self.activation:
            activation_function(each)

    @property
    def num_states(self) -> int:
        return 0

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        d_model, true_d_ff = x.shape[-1], mtf.Dimension("d_ff", self.d_ff)
        d_ff = mtf.Dimension("d_ff", -(-self.d_ff // self.multiple) * self.multiple)
        h = dense_product(
            x,
            [d_model],
            [d_ff],
            self.activation,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            unpadded_dims=true_d_ff,
            name="wi",
        )
        h = dropped(h, self.dropout_rate, self.dropout_broadcast_dims, is_training=context.is_training)
        initializer = self.output_initializer or self.kernel_initializer
        return dense(
            h,
            [d_model],
            [d_ff],
            use_bias=self.use_bias,
            kernel_initializer=initializer,
            unpadded_dims=true_d_ff,
            name="wo",
        )

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return self(x, context), []

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return []

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return self(x, context), state
