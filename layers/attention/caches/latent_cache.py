"""A cache of the latents of the tokens so far, for decoding."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

import meshtf as mtf
from meshtf.layers._operands import Dims
from meshtf.layers.attention.caches.key_value_cache import with_few_tokens
from meshtf.layers.attention.latent import LatentConfig
from meshtf.layers.attention.tokens import MEMORY_LENGTH, Tokens, as_memory
from meshtf.takes_mesh import takes_mesh


@dataclasses.dataclass(frozen=True)
class LatentCache:
    """Latents and rotated parts of keys, by position: latent_size + d_rotated numbers for each token.

    Keys and values of all heads would be num_heads · (d_kv + d_rotated + d_value) numbers: 40,960 in DeepSeek-V3, where
    the cache has 576.

    Attributes:
      latent: [.., memory_length, latent].
      rotated: [.., memory_length, d_kv].

    Examples:
      >>> from meshtf.layers.transformer import RmsNorm
      >>> config = mtf.layers.LatentConfig(num_heads=2, d_kv=4, d_rotated=2, d_value=4, latent_size=3, norm=RmsNorm())
      >>> cache = mtf.layers.LatentCache.empty("batch:4", 16, config)
      >>> [tensor.shape for tensor in cache.tensors]
      [Shape[batch:4 memory_length:16 latent:3], Shape[batch:4 memory_length:16 d_kv:2]]
    """

    latent: mtf.Tensor
    rotated: mtf.Tensor

    @staticmethod
    @takes_mesh
    def empty(
        mesh: mtf.Mesh, batch_dims: Dims, max_length: int, config: LatentConfig, dtype: tf.DType = tf.float32
    ) -> LatentCache:
        """Zeros for `max_length` positions. The mesh may be left out."""
        rows = mtf.convert_to_shape(batch_dims) + [mtf.Dimension(MEMORY_LENGTH, max_length)]
        return LatentCache(
            mtf.zeros(mesh, rows + [config.latent], dtype),
            mtf.zeros(mesh, rows + [config.part(config.d_rotated)], dtype),
        )

    @classmethod
    def of_tokens(cls, latent: mtf.Tensor, rotated: mtf.Tensor, max_length: int | None) -> LatentCache:
        """The cache of tokens [.., length, latent], with room for `max_length`; None for no more than there are."""
        parts = [as_memory(latent), as_memory(rotated)]
        more = 0 if max_length is None else max_length - parts[0].shape[MEMORY_LENGTH].size
        return cls(*(mtf.pad(part, [0, more], MEMORY_LENGTH) if more else part for part in parts))

    def write(self, position: mtf.Tensor, latent: mtf.Tensor, rotated: mtf.Tensor) -> LatentCache:
        """The cache with one token of each sequence, at int32 positions. Nothing is written at negative ones.

        If positions have a dimension that the cache lacks, they are those of a few consecutive tokens.
        """
        is_few = any(not self.latent.shape.has(d) for d in position.shape)
        write = with_few_tokens if is_few else functools.partial(mtf.scatter_update, dim=MEMORY_LENGTH)
        return LatentCache(write(self.latent, position, latent), write(self.rotated, position, rotated))

    def tokens(self, position: mtf.Tensor) -> Tokens:
        """The memory's tokens, after `position` was written last. Segments are 1 for what has been written."""
        index = mtf.range(position.mesh, self.latent.shape[MEMORY_LENGTH])
        written = mtf.to_int32(position >= index)
        return Tokens(index, segments=written, is_prefix=written)

    @property
    def tensors(self) -> list[mtf.Tensor]:
        """The tensors that a loop carries."""
        return [self.latent, self.rotated]
