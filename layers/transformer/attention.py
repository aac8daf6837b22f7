"""Self-attention and cross-attention as sublayers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.field_checks import check, check_above_zero, check_choice, check_kinds, check_sizes
from meshtf.layers.attention import (
    AttentionConfig,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    Int8KeyValueCache,
    KeyValueCache,
    PositionBias,
    RotaryScaling,
    Tokens,
    dot_product_attention,
    lean_attention,
    local_attention,
    project_keys_and_values,
    project_output,
    project_queries,
    ring_attention,
    rotary_embedding,
)
from meshtf.layers.attention.caches.beam_slots import BEAM_SLOTS, stays
from meshtf.layers.attention.caches.int8_cache import chosen_cache
from meshtf.layers.attention.cudnn import fused_attention, is_chosen_by_itself
from meshtf.layers.attention.lean import attends_in_blocks
from meshtf.layers.attention.tokens import LENGTH, MEMORY_LENGTH, as_memory
from meshtf.layers.transformer.context import Context, DecodingSpace, Memory
from meshtf.layers.transformer.stack import StackBias

ALGORITHMS = ("auto", "plain", "lean", "fused", "local", "ring")
CROSS_ALGORITHMS = ("auto", "plain", "lean", "fused")
LEAN_FROM = 1024
"""The smallest number of positions of the memory for which "auto" holds no whole matrix of scores.

In plans of published trainings of that length, the matrix takes up to a quarter of the peak memory. Blocks take at most
0.3 % more FLOPs, and 1 to 2 % fewer if all attention is causal.
"""


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Rotary:
    """Rotary position embeddings (Su et al. 2021); see `meshtf.layers.rotary_embedding`.

    Attributes:
      base: the base of the geometric series of wavelengths.
      fraction: the share of `d_kv` that is rotated.
      scaling: changes the wavelengths, for sequences longer than those of an earlier training.
      is_interleaved: whether neighbouring elements are paired (GPT-J).
    """

    base: float = 10000.0
    fraction: float = 1.0
    scaling: RotaryScaling | None = None
    is_interleaved: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "base")
        check(self, "fraction", 0 < self.fraction <= 1, "above 0, and at most 1")

    @language_function
    def __call__(self, x: mtf.Tensor, positions: mtf.Tensor, lengths: mtf.Tensor | None = None) -> mtf.Tensor:
        return rotary_embedding(
            x,
            positions,
            self.base,
            self.fraction,
            scaling=self.scaling,
            is_interleaved=self.is_interleaved,
            lengths=lengths,
        )


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class SelfAttention:
    """Attention of a sequence to itself, under the context's mask.

    Attributes:
      config: heads, sizes, biases, initializers.
      options: dropout of the weights, precision, an extra logit.
      rotary: rotates queries and keys by their position, if given.
      window: if given, a token sees only itself and the `window - 1` tokens next to it on each side, or fewer if the
        context's mask has a smaller window.
      algorithm: how attention is computed. All algorithms compute the same.
        - "plain" holds the whole matrix of scores.
        - "lean" holds a block of it at a time, and leaves out the blocks that a causal mask hides.
        - "local" is for a window, and holds the positions that it reaches.
        - "ring" is for a layout that splits `length`, and holds one block of keys and values at a time.
        - "fused" is cuDNN's kernel on GPUs, for bfloat16 or float16 without dropout.
        - "auto" is "fused" if the mesh has the kernel, the layout leaves `length` whole, and no bias would be rounded.
          Otherwise it is "lean" for 1024 positions or more, and "plain" for fewer.
      block_size: positions of the memory in a block of the lean algorithm.
      num_blocks: the number of blocks of the ring, a multiple of the cores over which `length` is split.
      bias: the layer's own bias by positions, instead of the stack's (UMT5).
      has_sinks: whether each head has one more logit, which has no value: a variable `sinks` [heads,
        (queries_per_head)], instead of `options.extra_logit` (gpt-oss).
      norms_input: whether the residual connection normalizes the input. ModernBERT's first layer takes it as it is.
      name: the scope of `q`, `k`, `v` and `o`.
    """

    config: AttentionConfig
    options: AttentionOptions = dataclasses.field(default_factory=AttentionOptions)
    rotary: Rotary | None = None
    window: int | None = None
    algorithm: str = "auto"
    block_size: int = 512
    num_blocks: int = 8
    bias: StackBias | None = None
    has_sinks: bool = False
    norms_input: bool = True
    name: str = "self_attention"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "block_size")
        check_choice(self, "algorithm", ALGORITHMS)
        if self.algorithm == "local" and self.window is None:
            raise ValueError("SelfAttention: the local algorithm needs a window, and window is None")
        if self.has_sinks and self.options.extra_logit is not None:
            raise ValueError(
                "SelfAttention: with has_sinks the extra logit is a variable; options.extra_logit must be None, and is "
                f"{self.options.extra_logit!r}"
            )
        if self.num_blocks < 1:
            raise ValueError(f"SelfAttention: num_blocks must be at least 1, and is {self.num_blocks}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"SelfAttention: window must be at least 1 (a token sees itself), and is {self.window}")

    @property
    def num_states(self) -> int:
        return 4 if chosen_cache() is Int8KeyValueCache else 2

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return self._whole(x, context)[0]

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        y, k, v = self._whole(x, context)
        return y, chosen_cache().of_tokens(as_memory(k), as_memory(v), self.config, context.max_length).tensors

    def _whole(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
        """The result of a call for whole sequences, and its keys and values."""
        keeps_length = self.algorithm in ("local", "ring")
        q = project_queries(x, self.config)
        # Keys and values may stay over `length`, which a layout can split while it leaves `memory_length` whole.
        k, v = project_keys_and_values(x, self.config, keeps_length=keeps_length)
        if self.rotary is not None:
            positions, lengths = _positions(context), context.lengths
            q = self.rotary(q, positions, lengths)
            k = self.rotary(k, positions if keeps_length else as_memory(positions), lengths)
        mask = self._mask(context)
        pattern = AttentionPattern.within(context.tokens, mask, self._bias(x.mesh, context))
        y = self._attended(q, k, v, pattern, is_training=context.is_training)
        return project_output(y, x.shape[-1], self.config), k, v

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        dims, length, dtype = space.batch_dims, space.max_length, space.dtype
        # With few beams it is quicker to multiply with the keys of all slots than to copy the cache; see `stays`.
        beam = space.beam if space.beam is not None and stays(space.beam, self.config) else None
        window = None if space.is_paged else self._mask(context).window  # pages hold all positions
        cache = KeyValueCache.empty(space.mesh, dims, length, self.config, dtype, window=window, beam=beam)
        return (Int8KeyValueCache.empty_like(cache) if chosen_cache() is Int8KeyValueCache else cache).tensors

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        q = project_queries(x, self.config)
        k, v = project_keys_and_values(x, self.config)
        if self.rotary is not None:
            q, k = (self.rotary(each, _positions(context)) for each in (q, k))
        now = context.tokens.positions
        assert now is not None
        mask = self._mask(context)
        if context.pages is not None:
            state = [context.pages.written(pool, new) for pool, new in zip(state, (k, v), strict=True)]
            keys, values = map(context.pages.read, state)
            cache = KeyValueCache(keys, values)
            pattern = AttentionPattern(mask, Tokens(now), cache.tokens(now), self._bias(x.mesh, context))
            y = dot_product_attention(q, cache.k, cache.v, pattern, self._options(x.mesh))
            return project_output(y, x.shape[-1], self.config), state
        held = state[0].shape["memory_length"].size
        # A cache shorter than the window holds all tokens, so nothing has to be overwritten.
        cache = chosen_cache()(*state, is_window=held == mask.window)
        slots = context.slots if state[0].shape.has(BEAM_SLOTS) else None
        if slots is not None:
            k, v = slots.own(k), slots.own(v)
        cache = cache.write(position, k, v)
        pattern = AttentionPattern(mask, Tokens(now), cache.tokens(now), self._bias(x.mesh, context))
        attend = dot_product_attention if slots is None else slots.attention
        y = attend(q, cache.k.astype(q.dtype), cache.v.astype(q.dtype), pattern, self._options(x.mesh))
        return project_output(y, x.shape[-1], self.config), cache.tensors

    def _mask(self, context: Context) -> AttentionMask:
        """The context's mask, narrowed to the window if there is one."""
        windows = [window for window in (self.window, context.mask.window) if window is not None]
        return dataclasses.replace(context.mask, window=min(windows, default=None))

    def _bias(self, mesh: mtf.Mesh, context: Context) -> PositionBias | None:
        if self.bias is None:
            return context.bias
        return self.bias.make(mesh, is_bidirectional=context.is_bidirectional)

    def _attended(
        self, q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, pattern: AttentionPattern, *, is_training: bool
    ) -> mtf.Tensor:
        options = self._options(q.mesh)
        if self.algorithm == "ring":
            return ring_attention(q, k, v, pattern, options, is_training=is_training, num_blocks=self.num_blocks)
        if self.algorithm == "local":
            return local_attention(q, k, v, pattern, options, is_training=is_training)
        attend = matrix_or_blocks(self.algorithm, q, k, options, self.block_size)
        return attend(q, k, v, pattern, options, is_training=is_training)

    def _options(self, mesh: mtf.Mesh) -> AttentionOptions:
        if not self.has_sinks:
            return self.options
        sinks = mtf.get_variable(mesh, "sinks", self.config.query_heads, initializer=mtf.zeros)
        return dataclasses.replace(self.options, extra_logit=sinks)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class CrossAttention:
    """Attention of a decoder to an encoder's output. It does not depend on the positions of tokens.

    Attributes:
      config: as for `SelfAttention`.
      options: as for `SelfAttention`.
      block_size: positions of the memory in a block of the lean algorithm.
      algorithm: "auto", "plain", "lean" or "fused", as for `SelfAttention`; steps of decoding are plain.
      name: the scope of `q`, `k`, `v` and `o`.
    """

    config: AttentionConfig
    options: AttentionOptions = dataclasses.field(default_factory=AttentionOptions)
    algorithm: str = "auto"
    block_size: int = 512
    name: str = "cross_attention"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "block_size")
        check_choice(self, "algorithm", CROSS_ALGORITHMS)

    @property
    def num_states(self) -> int:
        return 2

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return self.fill(x, context)[0]

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        state = self._keys_and_values(context)
        return self._attended(x, context, state), state

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return self._keys_and_values(context)

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        return self._attended(x, context, state), state

    def _keys_and_values(self, context: Context) -> list[mtf.Tensor]:
        return list(project_keys_and_values(_memory(context).x, self.config))

    def _attended(self, x: mtf.Tensor, context: Context, state: list[mtf.Tensor]) -> mtf.Tensor:
        k, v = state
        memory = _memory(context).tokens.as_memory()
        query = Tokens(segments=context.tokens.segments)
        pattern = AttentionPattern(query=query, memory=Tokens(segments=memory.segments))
        q = project_queries(x, self.config)
        attend = matrix_or_blocks(self.algorithm, q, k, self.options, self.block_size)
        y = attend(q, k, v, pattern, self.options, is_training=context.is_training)
        return project_output(y, x.shape[-1], self.config)


def matrix_or_blocks(
    algorithm: str, q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, block_size: int
) -> Callable[..., mtf.Tensor]:
    """The attention function for an algorithm. A step of decoding, whose query lacks `length`, is always plain."""
    if algorithm == "fused" or (algorithm == "auto" and is_chosen_by_itself(q, k)):
        return _with_kernel(algorithm, q, k, options, block_size)
    return _matrix_or_blocks(algorithm, q, k, options, block_size)


def _matrix_or_blocks(
    algorithm: str, q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, block_size: int
) -> Callable[..., mtf.Tensor]:
    if algorithm == "auto" and q.shape.has(LENGTH) and k.shape[MEMORY_LENGTH].size >= LEAN_FROM:
        algorithm = "lean" if attends_in_blocks(q, k, options, block_size) else "plain"
    if algorithm == "lean" and q.shape.has(LENGTH):
        return functools.partial(lean_attention, block_size=block_size)
    return dot_product_attention


def _with_kernel(
    asked: str, q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, block_size: int
) -> Callable[..., mtf.Tensor]:
    """The attention function of the kernel, which falls back to another one for operands that the kernel refuses."""
    otherwise = _matrix_or_blocks("auto", q, k, options, block_size)
    return functools.partial(fused_attention, otherwise=otherwise, rounds_bias=asked == "fused")


def _positions(context: Context) -> mtf.Tensor:
    if context.positions is None:
        raise GraphError("rotary embeddings need the tokens' positions, but the context has none")
    return context.positions


def _memory(context: Context) -> Memory:
    if context.memory is None:
        raise GraphError("cross-attention needs a memory to attend to, but the context has none; use it in decoders")
    return context.memory
