"""The sizes of a Transformer's step by hand in JAX."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class JaxSizes:
    """The sizes of the model and of its batch, by default those of GPT-2 124M, whose vocabulary is padded.

    Attributes:
      dtype: that of activations.
      is_causal: whether tokens see only those before them.
    """

    batch: int
    length: int = 1024
    dtype: str = "bfloat16"
    vocab: int = 50304
    layers: int = 12
    d_model: int = 768
    heads: int = 12
    d_ff: int = 3072
    is_causal: bool = True
