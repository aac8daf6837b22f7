"""The projections of attention, which make its variables: queries, keys, values and outputs."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.tokens import as_memory
from meshtf.layers.low_rank import low_rank_product


@language_function
def project_queries(x: mtf.Tensor, config: AttentionConfig) -> mtf.Tensor:
    """Scaled queries. Makes "q" [d_model, heads, (queries_per_head), d_kv], and "q_bias", under the open scope.

    Args:
      x: [.., d_model], its last dimension, whatever its name.
      config: sizes, bias, scale, initializer.

    Returns:
      [.., heads, (queries_per_head), d_kv], of the type of x.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> mtf.layers.project_queries(mtf.ones(mesh, "batch:4 length:16 d_model:8"), config).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    new = config.query_heads + [config.d_kv_dim]
    q = _projected(x, "q", x.shape[-1:], new, config)
    if config.query_key_norm is not None:
        q = config.query_key_norm.applied(q, config.query_heads, config.d_kv_dim, "queries")
    scale = config.d_kv**-0.5 if config.query_scale is None else config.query_scale
    return q if scale == 1.0 else q * scale


@language_function
def project_keys_and_values(
    x: mtf.Tensor, config: AttentionConfig, *, keeps_length: bool = False
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """Keys and values. Makes "k" and "v" [d_model, (heads), d_kv], and "k_bias" and "v_bias", under the open scope.

    Args:
      x: [.., (length), d_model]: the tokens that are attended to.
      config: sizes, bias, initializers.
      keeps_length: whether results keep the name `length`, which local and ring attention accept. A layout that splits
        `length` and not `memory_length` then splits them.

    Returns:
      Two of [.., (memory_length), (heads), d_kv], of the type of x: `length` has become `memory_length`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> k, v = mtf.layers.project_keys_and_values(mtf.ones(mesh, "batch:4 length:16 d_model:8"), config)
      >>> k.shape, v.shape
      (Shape[batch:4 memory_length:16 heads:2 d_kv:4], Shape[batch:4 memory_length:16 heads:2 d_kv:4])
    """
    new = config.memory_heads + [config.d_kv_dim]
    k, v = (_projected(x, name, x.shape[-1:], new, config) for name in ("k", "v"))
    if config.query_key_norm is not None:
        k = config.query_key_norm.applied(k, config.memory_heads, config.d_kv_dim, "keys")
    # Renamed here and not in x: if the two names are split differently, each core projects its part before it moves.
    return (k, v) if keeps_length else (as_memory(k), as_memory(v))


@language_function
def project_output(y: mtf.Tensor, d_model: DimensionLike, config: AttentionConfig) -> mtf.Tensor:
    """The sum over heads. Makes "o" [heads, (queries_per_head), d_kv, d_model], and "o_bias", under the open scope.

    Args:
      y: [.., heads, (queries_per_head), d_kv], as attention returns it.
      d_model: the dimension of the result.
      config: sizes, bias, initializer.

    Returns:
      [.., d_model], of the type of y.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> attended = mtf.ones(mesh, "batch:4 length:16 heads:2 d_kv:4")
      >>> mtf.layers.project_output(attended, "d_model:8", config).shape
      Shape[batch:4 length:16 d_model:8]
    """
    reduced = config.query_heads + [config.d_kv_dim]
    return _projected(y, "o", reduced, mtf.Shape([new_dimension(d_model, y)]), config)


def _projected(x: mtf.Tensor, name: str, reduced: mtf.Shape, new: mtf.Shape, config: AttentionConfig) -> mtf.Tensor:
    initializer = getattr(config.initializers, name)(reduced, new)
    kernel = mtf.get_variable(x.mesh, name, reduced + new, initializer=initializer, matrix=(reduced, new))
    y = mtf.quantization.kernel_product(x, kernel, x.shape - reduced + new)
    if config.low_rank is not None and name in config.low_rank.projections:
        y += low_rank_product(x, name, reduced, new, config.low_rank)
    if not config.has_bias(name):
        return y
    bias = mtf.get_variable(x.mesh, f"{name}_bias", new, initializer=mtf.zeros)
    return y + bias.astype(x.dtype)
