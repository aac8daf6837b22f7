"""A cache of the keys and values of the tokens so far, for decoding."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.layers._operands import Dims
from meshtf.layers.attention.caches.beam_slots import slots_of
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.tokens import MEMORY_LENGTH, Tokens
from meshtf.takes_mesh import takes_mesh

_OVERWRITES = "a window's cache that overwrites earlier positions takes one token of each sequence at a time"


def with_few_tokens(cache: mtf.Tensor, places: mtf.Tensor, new: mtf.Tensor) -> mtf.Tensor:
    """A cache [.., memory_length, ..] with a few tokens of each sequence.

    They are written one after the other, each in place. A single write of all of them would copy the cache.

    Args:
      cache: the cache.
      places: int32, the index of each token: over dimensions of the cache, and one that it lacks.
      new: the tokens, with the dimensions of the cache except `memory_length`, and with the one that it lacks.
    """
    (few,) = [d for d in places.shape if not cache.shape.has(d)]
    for place, token in zip(mtf.unstack(places, few), mtf.unstack(new, few), strict=True):
        cache = mtf.scatter_update(cache, place, token, MEMORY_LENGTH)
    return cache


@dataclasses.dataclass(frozen=True)
class KeyValueCache:
    """Keys and values by position. A loop carries the cache as its two tensors.

    A step of decoding is `cache = cache.write(position, k, v)`, then attention of q to `cache.k`, `cache.v` with
    `memory=cache.tokens(position)`.

    Attributes:
      k, v: [.., (heads), (beam_slots), memory_length, d_kv]: a matrix for each head, as it is multiplied. Without a
        window `memory_length` is that of the longest sequence. With a window only the last positions are kept. Position
        p is then at index p modulo `memory_length`.
      is_window: whether it holds the last `memory_length` positions rather than the first.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> cache = mtf.layers.KeyValueCache.empty("batch:4", max_length=16, config=config)
      >>> k, position = mtf.ones(mesh, "batch:4 heads:2 d_kv:4"), mtf.constant(mesh, 3, dtype=tf.int32)
      >>> cache.write(position, k, k).k.shape
      Shape[batch:4 heads:2 memory_length:16 d_kv:4]
    """

    k: mtf.Tensor
    v: mtf.Tensor
    is_window: bool = False

    @staticmethod
    @takes_mesh
    def empty(
        mesh: mtf.Mesh,
        batch_dims: Dims,
        max_length: int,
        config: AttentionConfig,
        dtype: tf.DType = tf.float32,
        *,
        window: int | None = None,
        beam: mtf.Dimension | None = None,
    ) -> KeyValueCache:
        """An empty cache: zeros over [batch_dims, (heads), (beam_slots), memory_length, d_kv].

        Args:
          mesh: the program's mesh. May be left out.
          batch_dims: dimensions such as [batch], or [batch, beam].
          max_length: the number of positions of the longest sequence.
          config: the sizes, heads and d_kv.
          dtype: the dtype of keys and values.
          window: the window of the attention's mask, if it is causal. The cache then has room for no more positions.
          beam: the beam dimension of a beam search whose keys and values stay in place (see `BeamSlots`). The cache
            has `beam_slots` instead of it, after the heads.
        """
        is_window = window is not None and window < max_length
        memory = mtf.Dimension(MEMORY_LENGTH, window if window is not None and is_window else max_length)
        beams, slots = ([], []) if beam is None else ([beam], [slots_of(beam)])
        shape = mtf.convert_to_shape(batch_dims) - beams + [*config.memory_heads, *slots, memory, config.d_kv_dim]
        return KeyValueCache(mtf.zeros(mesh, shape, dtype), mtf.zeros(mesh, shape, dtype), is_window)

    @classmethod
    def of_tokens(
        cls, k: mtf.Tensor, v: mtf.Tensor, config: AttentionConfig, max_length: int | None = None
    ) -> KeyValueCache:
        """A cache with the keys and values of the first positions, as `project_keys_and_values` returns them.

        It has room for `max_length` positions; by default only for these.
        """
        length = k.shape[MEMORY_LENGTH]
        memory = mtf.Shape([length, config.d_kv_dim])
        shape = k.shape - memory - config.memory_heads + config.memory_heads + memory
        more = 0 if max_length is None else max_length - length.size
        keys, values = k.transpose(shape), v.transpose(shape)
        if not more:
            return cls(keys, values)
        return cls(mtf.pad(keys, [0, more], MEMORY_LENGTH), mtf.pad(values, [0, more], MEMORY_LENGTH))

    @language_function
    def write(self, position: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> KeyValueCache:
        """The cache with the keys and values of tokens at these positions.

        Args:
          position: int32 over the dimensions of `batch_dims` or fewer: a scalar if all are at the same position. For
            many tokens at once (a prompt), it also has `memory_length`, in ascending order. For a few consecutive
            tokens, it has another dimension that the cache lacks, and the cache must have room for all positions.
            Nothing is written at positions that are negative or, without a window, beyond the end.
          k, v: [.., (memory_length), (heads), d_kv], as `project_keys_and_values` returns them. They have the same
            `memory_length`, or the same dimension of a few tokens, as `position`.

        Raises:
          ShapeError: `k` or `v` does not have the dimensions of the cache.
          DtypeError: positions are not int32, or the types of `k` and `v` are not the cache's.
        """
        is_many = position.shape.has(MEMORY_LENGTH)
        few = [] if is_many else [d for d in position.shape if not self.k.shape.has(d)]
        for name, new in {"k": k, "v": v}.items():
            self._check(name, new, mtf.Shape([*few, *([self._memory_length] if is_many else [])]))
        place = self._place(position, overwrites=not few)
        if is_many:
            place, k, v = (x.rename({MEMORY_LENGTH: "written"}) for x in (place, k, v))
        write = with_few_tokens if few else functools.partial(mtf.scatter_update, dim=MEMORY_LENGTH)
        return self.with_tensors([write(old, place, new) for old, new in ((self.k, k), (self.v, v))])

    def tokens(self, position: mtf.Tensor) -> Tokens:
        """The memory's tokens, after `position` was written last (one token each, as `write` takes it).

        Positions are over [.., memory_length]. Segments are 1 for what has been written, and 0 elsewhere. All that has
        been written may count as prefix, because nothing of it is ahead.
        """
        index = mtf.range(position.mesh, self._memory_length)
        if not self.is_window:
            positions, is_written = index, position >= index
        else:
            # The latest position at or before `position` that is written to this index.
            positions = position - (position - index) % self._memory_length.size
            is_written = positions >= 0
        written = mtf.to_int32(is_written)
        return Tokens(positions, segments=written, is_prefix=written)

    @property
    def tensors(self) -> list[mtf.Tensor]:
        """The tensors that a loop carries."""
        return [self.k, self.v]

    def with_tensors(self, tensors: list[mtf.Tensor]) -> KeyValueCache:
        """The same cache after an iteration, or with its rows in another order."""
        k, v = tensors
        return dataclasses.replace(self, k=k, v=v)

    @property
    def _memory_length(self) -> mtf.Dimension:
        return self.k.shape[MEMORY_LENGTH]

    def _place(self, position: mtf.Tensor, *, overwrites: bool) -> mtf.Tensor:
        """The index along `memory_length`. A position that is not written has an index outside.

        Unless a write `overwrites` earlier positions, the memory of a window must have room for all of them.
        """
        if position.dtype != tf.int32:
            raise DtypeError(f"positions [{position.shape}] must be int32, not {position.dtype.name}")
        if not self.is_window:
            return position
        if not overwrites:
            held = mtf.maximum(position, 0)
            mtf.check_indices(held, self._memory_length, message="a position", advice=_OVERWRITES)
        return mtf.where(position < 0, position, position % self._memory_length.size)

    def _check(self, name: str, new: mtf.Tensor, several: mtf.Shape) -> None:
        """Raises ShapeError unless `new` has the cache's dimensions and, by name, those of `several` tokens."""
        wanted = {d.name: d for d in self.k.shape if d.name != MEMORY_LENGTH}
        found = {d.name: d for d in new.shape if not several.has(d.name)}
        if wanted != found:
            form = mtf.Shape(wanted.values())
            raise ShapeError(f"{name} [{new.shape}] must have the dimensions [{form}] of the cache [{self.k.shape}]")
        if new.dtype != self.k.dtype:
            raise DtypeError(f"{name} is {new.dtype.name}, the cache {self.k.dtype.name}; convert with mtf.cast")
