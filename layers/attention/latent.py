"""Attention whose keys and values come from one small vector of each token, its latent (DeepSeek-AI 2024).

A token's latent has far fewer elements than its keys and values. Each head has matrices that make its key and its value
from the latent. A part of the key is rotated by position, and is the same for all heads. For two heads:

    x[t]  ->  latent[t], rotated key[t]                          what a cache holds
    key   of head h  =  (k[h] . latent[t], rotated key[t])       from all of which attention is computed as usual
    value of head h  =   v[h] . latent[t]

A step of decoding makes no keys. It multiplies the query by k[h] first, and compares the result with the latents:
q . (k[h] . latent) = (q . k[h]) . latent. It takes the weighted mean of the latents, and multiplies that by v[h].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.attention._scores import biased_and_masked, logits_dtype, softmax_weights, where_any_visible
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, MEMORY_LENGTH
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LatentConfig:
    """Sizes and options of attention with latents.

    Attributes:
      num_heads: the number of heads.
      d_kv: the size of the part of a key that its head makes from the latent.
      d_rotated: the size of the part of a key that is rotated by position, and is the same for all heads.
      d_value: the size of a value of one head.
      latent_size: the size of the dimension `latent`.
      norm: normalizes latents; its variables are in the scopes `keys` and `queries`.
      query_latent_size: the size of `query_latent`, from which queries are made; None makes them from the token itself.
      use_bias: whether the projections from and to `d_model` add biases, except that of queries without a latent.
      query_scale: the factor of queries; by default (d_kv + d_rotated)^-0.5.
      kernel_initializer: the initializer of all kernels.

    Examples:
      >>> from meshtf.layers.transformer import RmsNorm
      >>> config = mtf.layers.LatentConfig(num_heads=2, d_kv=4, d_rotated=2, d_value=4, latent_size=3, norm=RmsNorm())
      >>> config.heads, config.latent
      (Dimension(name='heads', size=2), Dimension(name='latent', size=3))
    """

    num_heads: int
    d_kv: int
    d_rotated: int
    d_value: int
    latent_size: int
    norm: Callable[[mtf.Tensor, Sequence[mtf.Dimension]], mtf.Tensor]
    query_latent_size: int | None = None
    use_bias: bool = False
    query_scale: float | None = None
    kernel_initializer: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_heads", "d_kv", "d_rotated", "d_value", "latent_size", "query_latent_size")

    @property
    def heads(self) -> mtf.Dimension:
        return mtf.Dimension("heads", self.num_heads)

    @property
    def latent(self) -> mtf.Dimension:
        return mtf.Dimension("latent", self.latent_size)

    @property
    def scale(self) -> float:
        return (self.d_kv + self.d_rotated) ** -0.5 if self.query_scale is None else self.query_scale

    def part(self, size: int) -> mtf.Dimension:
        """`d_kv` of this size: keys, their rotated part and values each have one."""
        return mtf.Dimension(D_KV, size)


@language_function
def project_latent_queries(x: mtf.Tensor, config: LatentConfig) -> tuple[mtf.Tensor, mtf.Tensor]:
    """Scaled queries, and the part of each that is to be rotated.

    Makes "q" and "q_rotated" under the open scope: [d_model, heads, d_kv], or [query_latent, heads, d_kv] together with
    "q_latent" [d_model, query_latent].

    Args:
      x: [.., d_model], its last dimension, whatever its name.
      config: the sizes.

    Returns:
      Two of [.., heads, d_kv], whose sizes of `d_kv` are `config.d_kv` and `config.d_rotated`.

    Examples:
      >>> from meshtf.layers.transformer import RmsNorm
      >>> config = mtf.layers.LatentConfig(num_heads=2, d_kv=4, d_rotated=2, d_value=4, latent_size=3, norm=RmsNorm())
      >>> q, rotated = mtf.layers.project_latent_queries(mtf.ones(mesh, "batch:4 length:16 d_model:8"), config)
      >>> q.shape, rotated.shape
      (Shape[batch:4 length:16 heads:2 d_kv:4], Shape[batch:4 length:16 heads:2 d_kv:2])
    """
    reduced = x.shape[-1:]
    if config.query_latent_size is not None:
        new = mtf.Dimension("query_latent", config.query_latent_size)
        x = _projected(x, "q_latent", reduced, [new], config, use_bias=config.use_bias)
        x, reduced = _normalized(x, "queries", config), mtf.Shape([new])
    q = _projected(x, "q", reduced, [config.heads, config.part(config.d_kv)], config)
    rotated = _projected(x, "q_rotated", reduced, [config.heads, config.part(config.d_rotated)], config)
    return q * config.scale, rotated * config.scale


@language_function
def project_latents(x: mtf.Tensor, config: LatentConfig) -> tuple[mtf.Tensor, mtf.Tensor]:
    """Normalized latents, and the part of keys that is to be rotated.

    Makes "latent" [d_model, latent] and "k_rotated" [d_model, d_kv] under the open scope.

    Args:
      x: [.., d_model], its last dimension, whatever its name.
      config: the sizes.

    Returns:
      [.., latent] and [.., d_kv], whose `d_kv` has the size `config.d_rotated`.

    Examples:
      >>> from meshtf.layers.transformer import RmsNorm
      >>> config = mtf.layers.LatentConfig(num_heads=2, d_kv=4, d_rotated=2, d_value=4, latent_size=3, norm=RmsNorm())
      >>> [part.shape for part in mtf.layers.project_latents(mtf.ones(mesh, "batch:4 length:16 d_model:8"), config)]
      [Shape[batch:4 length:16 latent:3], Shape[batch:4 length:16 d_kv:2]]
    """
    reduced = x.shape[-1:]
    latent = _projected(x, "latent", reduced, [config.latent], config, use_bias=config.use_bias)
    rotated = _projected(x, "k_rotated", reduced, [config.part(config.d_rotated)], config, use_bias=config.use_bias)
    return _normalized(latent, "keys", config), rotated


def expanded(latent: mtf.Tensor, rotated: mtf.Tensor, config: LatentConfig) -> tuple[mtf.Tensor, mtf.Tensor]:
    """The keys and values of all heads, from latents [.., latent] and rotated parts [.., d_kv].

    Both have a `d_kv` of the same size, as attention functions need; the smaller ones are padded with zeros.
    """
    kernels = _kernels_of_latent(latent, config)
    # Not by `kernel_product`: decoding multiplies other tensors by these kernels, and must give the same result.
    k, v = (mtf.einsum([latent, w], output_shape=latent.shape - [config.latent] + w.shape[1:]) for w in kernels)
    return joined(k, mtf.broadcast(rotated, k.shape[:-1] + rotated.shape[-1:]), config), _padded(v, config)


def joined(own: mtf.Tensor, rotated: mtf.Tensor, config: LatentConfig) -> mtf.Tensor:
    """Whole queries or keys [.., heads, d_kv], joined from their two parts."""
    return _padded(mtf.concat([own, rotated], D_KV), config)


def project_latent_output(y: mtf.Tensor, d_model: mtf.Dimension, config: LatentConfig) -> mtf.Tensor:
    """The sum over heads. Makes "o" [heads, d_kv, d_model], and "o_bias", under the open scope.

    Args:
      y: [.., heads, d_kv]; elements beyond `config.d_value` are left out.
      d_model: the dimension of the result.
      config: the sizes.
    """
    value = config.part(config.d_value)
    if y.shape[D_KV] != value:
        y = y[D_KV, : value.size]
    return _projected(y, "o", mtf.Shape([config.heads, value]), [d_model], config, use_bias=config.use_bias)


def attend_to_latents(
    queries: tuple[mtf.Tensor, mtf.Tensor],
    latent: mtf.Tensor,
    rotated: mtf.Tensor,
    pattern: AttentionPattern,
    config: LatentConfig,
    options: AttentionOptions,
) -> mtf.Tensor:
    """Means of values, weighted by attention, without keys or values of any head.

    Args:
      queries: [.., heads, d_kv], and the rotated parts.
      latent: [.., memory_length, latent].
      rotated: the rotated parts of keys, [.., memory_length, d_kv].
      pattern: who sees whom, and the bias.
      config: the sizes.
      options: precision, an extra logit.

    Returns:
      [.., heads, d_kv], whose `d_kv` has the size `config.d_value`.
    """
    own, q_rotated = queries
    dtype, memory = logits_dtype(own, options), latent.shape[MEMORY_LENGTH]
    k, v = _kernels_of_latent(latent, config)
    rows = own.shape[:-1]
    q_latent = mtf.einsum([own, k], output_shape=rows + [config.latent])
    logits = mtf.einsum([q_latent.astype(dtype), latent.astype(dtype)], output_shape=rows + [memory])
    logits += mtf.einsum([q_rotated.astype(dtype), rotated.astype(dtype)], output_shape=rows + [memory])
    logits, visible = biased_and_masked(logits, pattern, options)
    weights = softmax_weights(logits, options, MEMORY_LENGTH).astype(latent.dtype)
    mean = mtf.einsum([weights, latent], output_shape=rows + [config.latent])
    y = mtf.einsum([mean, v], output_shape=rows + v.shape[-1:])
    return where_any_visible(visible, y, MEMORY_LENGTH)


def _padded(x: mtf.Tensor, config: LatentConfig) -> mtf.Tensor:
    more = max(config.d_kv + config.d_rotated, config.d_value) - x.shape[D_KV].size
    return mtf.pad(x, [0, more], D_KV) if more else x


def _normalized(x: mtf.Tensor, scope: str, config: LatentConfig) -> mtf.Tensor:
    with mtf.variable_scope(scope):
        return config.norm(x, [x.shape[-1]])


def _projected(
    x: mtf.Tensor,
    name: str,
    reduced: mtf.Shape,
    new: Sequence[mtf.Dimension],
    config: LatentConfig,
    *,
    use_bias: bool = False,
) -> mtf.Tensor:
    kernel = _kernel(x, name, reduced, new, config)
    y = mtf.quantization.kernel_product(x, kernel, x.shape - reduced + mtf.Shape(new))
    if not use_bias:
        return y
    bias = mtf.get_variable(x.mesh, f"{name}_bias", mtf.Shape(new), initializer=mtf.zeros)
    return y + bias.astype(x.dtype)


def _kernels_of_latent(latent: mtf.Tensor, config: LatentConfig) -> list[mtf.Tensor]:
    """The kernels with which all heads make keys and values from latents, in the dtype of `latent`."""
    sizes = {"k": config.d_kv, "v": config.d_value}
    made = {name: [config.heads, config.part(size)] for name, size in sizes.items()}
    return [_kernel(latent, n, mtf.Shape([config.latent]), new, config).astype(latent.dtype) for n, new in made.items()]


def _kernel(
    x: mtf.Tensor, name: str, reduced: mtf.Shape, new: Sequence[mtf.Dimension], config: LatentConfig
) -> mtf.Tensor:
    made = mtf.Shape(new)
    initializer = config.kernel_initializer(reduced, made)
    return mtf.get_variable(x.mesh, name, reduced + made, initializer=initializer, matrix=(reduced, made))
