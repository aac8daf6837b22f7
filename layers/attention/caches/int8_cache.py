"""A cache of keys and values as int8 numbers, with a float32 scale for each head and position."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers.attention.caches.key_value_cache import KeyValueCache
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.tokens import Tokens


@dataclasses.dataclass(frozen=True)
class Int8KeyValueCache:
    """Keys and values by position, as `KeyValueCache` keeps them, in about a quarter of the bytes of float32.

    `write` quantizes: the largest magnitude along d_kv becomes 127. `k` and `v` return the numbers times the scales, in
    float32. A loop carries the cache as its four tensors.

    Attributes:
      k_numbers: the keys' numbers, int8 [.., (heads), (beam_slots), memory_length, d_kv].
      v_numbers: the values' numbers.
      k_scale: the keys' scales, float32, the same dimensions without d_kv.
      v_scale: the values' scales.
      is_window: as in `KeyValueCache`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> empty = mtf.layers.KeyValueCache.empty("batch:4", max_length=16, config=config)
      >>> cache = mtf.layers.Int8KeyValueCache.empty_like(empty)
      >>> k, position = mtf.ones(mesh, "batch:4 heads:2 d_kv:4"), mtf.constant(mesh, 3, dtype=tf.int32)
      >>> cache.write(position, k, k).k_scale.shape
      Shape[batch:4 heads:2 memory_length:16]
    """

    k_numbers: mtf.Tensor
    v_numbers: mtf.Tensor
    k_scale: mtf.Tensor
    v_scale: mtf.Tensor
    is_window: bool = False

    @classmethod
    def empty_like(cls, cache: KeyValueCache) -> Int8KeyValueCache:
        """An empty cache with the room of another, such as one that `KeyValueCache.empty` makes."""
        numbers = mtf.zeros(cache.k.mesh, cache.k.shape, tf.int8)
        scale = mtf.zeros(cache.k.mesh, cache.k.shape[:-1], tf.float32)
        return cls(numbers, numbers, scale, scale, cache.is_window)

    @classmethod
    def of_tokens(
        cls, k: mtf.Tensor, v: mtf.Tensor, config: AttentionConfig, max_length: int | None = None
    ) -> Int8KeyValueCache:
        """A cache with the keys and values of the first positions, as `KeyValueCache.of_tokens` makes it."""
        whole = KeyValueCache.of_tokens(k, v, config, max_length)
        keys, values = (mtf.quantization.quantize(x, [config.d_kv_dim]) for x in whole.tensors)
        return cls(keys.values, values.values, keys.scale, values.scale)

    @language_function
    def write(self, position: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> Int8KeyValueCache:
        """The cache with the keys and values of tokens at these positions, as `KeyValueCache.write` takes them."""
        d_kv = self.k_numbers.shape[-1:]
        keys, values = (mtf.quantization.quantize(x, d_kv) for x in (k, v))
        numbers = self._numbers.write(position, keys.values, values.values)
        scales = self._scales.write(position, keys.scale, values.scale)
        return self.with_tensors([*numbers.tensors, *scales.tensors])

    def tokens(self, position: mtf.Tensor) -> Tokens:
        """The memory's tokens, after `position` was written last."""
        return self._numbers.tokens(position)

    @property
    def k(self) -> mtf.Tensor:
        """The keys, float32."""
        return mtf.quantization.QuantizedTensor(self.k_numbers, self.k_scale).dequantized()

    @property
    def v(self) -> mtf.Tensor:
        """The values, float32."""
        return mtf.quantization.QuantizedTensor(self.v_numbers, self.v_scale).dequantized()

    @property
    def tensors(self) -> list[mtf.Tensor]:
        """The tensors that a loop carries."""
        return [self.k_numbers, self.v_numbers, self.k_scale, self.v_scale]

    def with_tensors(self, tensors: list[mtf.Tensor]) -> Int8KeyValueCache:
        """The same cache after an iteration, or with its rows in another order."""
        return Int8KeyValueCache(*tensors, is_window=self.is_window)

    @property
    def _numbers(self) -> KeyValueCache:
        return KeyValueCache(self.k_numbers, self.v_numbers, self.is_window)

    @property
    def _scales(self) -> KeyValueCache:
        return KeyValueCache(self.k_scale, self.v_scale, self.is_window)


def chosen_cache() -> type[KeyValueCache] | type[Int8KeyValueCache]:
    """The class of caches for the program that is being built. It depends on the program's quantization."""
    return Int8KeyValueCache if mtf.quantization.keeps_int8_cache() else KeyValueCache
