"""Self-attention by latents as a sublayer."""

from __future__ import annotations

import dataclasses

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.field_checks import check_choice, check_kinds, check_sizes
from meshtf.layers.attention import (
    AttentionOptions,
    AttentionPattern,
    LatentCache,
    LatentConfig,
    Tokens,
    project_latent_queries,
    project_latents,
)
from meshtf.layers.attention.latent import attend_to_latents, expanded, joined, project_latent_output
from meshtf.layers.attention.tokens import as_memory
from meshtf.layers.transformer.attention import CROSS_ALGORITHMS, Rotary, matrix_or_blocks
from meshtf.layers.transformer.context import Context, DecodingSpace


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LatentAttention:
    """Attention of a sequence to itself, with keys and values from one latent of each token (DeepSeek-AI 2024).

    For whole sequences, it makes the keys and values of all heads. A step of decoding makes none: it compares queries
    with the latents. It caches only the latent and the rotated part of the key of each token.

    Attributes:
      config: heads, sizes, the norm of latents.
      rotary: turns a part of queries and keys by position.
      options: dropout of the weights, precision, an extra logit.
      algorithm: "plain", "lean", "fused" or "auto", as for `SelfAttention`; steps of decoding are plain.
      block_size: positions of the memory in a block of the lean algorithm.
      name: the scope of its variables.
    """

    config: LatentConfig
    rotary: Rotary = dataclasses.field(default_factory=Rotary)
    options: AttentionOptions = dataclasses.field(default_factory=AttentionOptions)
    algorithm: str = "auto"
    block_size: int = 512
    name: str = "self_attention"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "block_size")
        check_choice(self, "algorithm", CROSS_ALGORITHMS)

    @property
    def num_states(self) -> int:
        return 2

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return self._whole(x, context)[0]

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        y, latent, rotated = self._whole(x, context)
        return y, LatentCache.of_tokens(latent, rotated, context.max_length).tensors

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return LatentCache.empty(space.mesh, space.batch_dims, space.max_length, self.config, space.dtype).tensors

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        queries, latent, rotated = self._projected(x, context)
        now, pages = context.tokens.positions, context.pages
        assert now is not None
        if pages is None:
            cache = LatentCache(*state).write(position, latent, rotated)
            state = cache.tensors
        else:
            state = [pages.written(pool, new) for pool, new in zip(state, (latent, rotated), strict=True)]
            cache = LatentCache(*map(pages.read, state))
        pattern = AttentionPattern(context.mask, Tokens(now), cache.tokens(now), context.bias)
        y = attend_to_latents(queries, cache.latent, cache.rotated, pattern, self.config, self.options)
        return project_latent_output(y, x.shape[-1], self.config), state

    def _whole(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
        """The result of a call for whole sequences, the latents, and the rotated parts of keys."""
        queries, latent, rotated = self._projected(x, context)
        q = joined(*queries, self.config)
        k, v = (as_memory(each) for each in expanded(latent, rotated, self.config))
        pattern = AttentionPattern.within(context.tokens, context.mask, context.bias)
        attend = matrix_or_blocks(self.algorithm, q, k, self.options, self.block_size)
        y = attend(q, k, v, pattern, self.options, is_training=context.is_training)
        return project_latent_output(y, x.shape[-1], self.config), latent, rotated

    def _projected(
        self, x: mtf.Tensor, context: Context
    ) -> tuple[tuple[mtf.Tensor, mtf.Tensor], mtf.Tensor, mtf.Tensor]:
        """The two parts of queries, the latents, and the rotated parts of keys."""
        if context.positions is None:
            raise GraphError(
                "LatentAttention rotates queries and keys by the tokens' positions, but the context has none"
            )
        q, q_rotated = project_latent_queries(x, self.config)
        latent, k_rotated = project_latents(x, self.config)
        q_rotated, k_rotated = (
            self.rotary(each, context.positions, context.lengths) for each in (q_rotated, k_rotated)
        )
        return (q, q_rotated), latent, k_rotated
