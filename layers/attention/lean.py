"""Attention that never holds the whole matrix of scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.layers.attention._blocks import Blocks
from meshtf.layers.attention._scores import (
    attend,
    check_operands,
    extra_logit,
    logits_dtype,
    logits_shape,
    make_logits,
    masked_value,
)
from meshtf.layers.attention.options import DEFAULT_OPTIONS, DROPOUT, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, LENGTH, MEMORY_LENGTH, Tokens
from meshtf.ops.random.dropout_in_blocks import DropoutInBlocks

MEMORY_BLOCKS = "memory_blocks"


@language_function
def lean_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
    block_size: int = 512,
) -> mtf.Tensor:
    """Does what `dot_product_attention` does, with scores of `block_size` positions of the memory at a time.

    A loop over blocks keeps the running maximum, sum and mean of each query (Milakov & Gimelshein 2018; Rabe & Staats
    2021). The gradient keeps one number per query and head, and computes the scores again, block by block: memory
    grows with length, not with its square.

    Block j has every n-th position from the j-th on, n being the number of blocks, so that a memory that is split
    over the mesh stays where it is. A `memory_length` that does not divide is padded with positions that nobody sees.

    Args:
      q: as for `dot_product_attention`, and so the others, with the same result.
      k: the keys.
      v: the values.
      pattern: who sees whom, and the bias.
      options: dropout, precision, an extra logit.
      is_training: whether weights are dropped.
      block_size: positions of the memory in a block, about: where that is split, blocks must divide as it does.

    Raises:
      ShapeError: as `dot_product_attention`; k has no `memory_length`.
      GraphError: as `dot_product_attention`; or each weight is dropped by itself and `memory_length` has no divisor
        near `block_size`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> h = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> q, (k, v) = mtf.layers.project_queries(h, config), mtf.layers.project_keys_and_values(h, config)
      >>> causal = mtf.layers.AttentionMask(is_causal=True)
      >>> pattern = mtf.layers.AttentionPattern.within(mtf.layers.Tokens.along(h), causal)
      >>> mtf.layers.lean_attention(q, k, v, pattern, block_size=8).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    check_operands(q, k, v, MEMORY_LENGTH)
    options = options.in_mode(is_training)
    blocks = Blocks.of_wide(k.shape.get_dim_by_name(MEMORY_LENGTH).size, _checked(block_size))
    by_itself = is_independent(q, k, options)
    if by_itself and blocks.padding and blocks.count > 1:
        blocks = _without_padding(blocks, block_size)
    if blocks.count == 1:
        return attend(q, k, v, pattern, options, MEMORY_LENGTH)
    tokens = _padding_told(pattern.memory, blocks, q.mesh)
    if by_itself:
        memory = _Memory(k, v, tokens, None).cut(blocks).numbered(blocks)
        drawn = _drawn_in_blocks(q, k, options, blocks)
    else:
        memory, drawn = _Memory(k, v, tokens, kept_weights(q, k, options)).cut(blocks), None
    y = _LeanAttention(q, memory, pattern, options, drawn).result()
    return mtf.transpose(mtf.cast(y, q.dtype), q.shape)


def attends_in_blocks(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, block_size: int) -> bool:
    """Whether `lean_attention` takes these in training: all but a `memory_length` that it would have to pad, and of
    whose padding the random bits of dropout know nothing."""
    blocks = Blocks.of_wide(k.shape.get_dim_by_name(MEMORY_LENGTH).size, block_size)
    if not blocks.padding or not is_independent(q, k, options):
        return True
    return _is_wide_enough(Blocks.exact(blocks.used, block_size), block_size)


def _is_wide_enough(blocks: Blocks, block_size: int) -> bool:
    """Whether there is some work in each step of the loop."""
    return 8 * blocks.size >= block_size


def is_independent(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions) -> bool:
    """Whether each weight is dropped by itself, along queries and memory."""
    if not options.dropout_rate:
        return False
    noise_shape = options.noise_shape(logits_shape(q.shape, k.shape, MEMORY_LENGTH))
    return noise_shape.has(LENGTH) and noise_shape.has(MEMORY_LENGTH)


def _without_padding(blocks: Blocks, block_size: int) -> Blocks:
    """Random bits go by the position in the whole, where there is no padding: blocks are then of a divisor's size.

    Raises:
      GraphError: blocks would be of less than an eighth of `block_size`, and so a loop of little work in each step.
    """
    exact = Blocks.exact(blocks.used, block_size)
    if not _is_wide_enough(exact, block_size):
        raise GraphError(
            f"dropout of each weight by itself needs blocks that divide {MEMORY_LENGTH}, and of {blocks.used} the "
            f"largest divisor up to block_size, {block_size}, is {exact.size}; pad {MEMORY_LENGTH} to a multiple of a "
            f'power of two, or drop weights together, as with dropout_broadcast_dims=("{LENGTH}",)'
        )
    return exact


def _drawn_in_blocks(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, blocks: Blocks) -> DropoutInBlocks:
    noise_shape = options.noise_shape(logits_shape(q.shape, k.shape, MEMORY_LENGTH))
    return DropoutInBlocks(q.mesh, noise_shape, MEMORY_LENGTH, blocks.count, options.dropout_rate, DROPOUT)


def _checked(block_size: int) -> int:
    if block_size < 1:
        raise GraphError(f"block_size must be at least 1, and is {block_size}")
    return block_size


def kept_weights(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions) -> mtf.Tensor | None:
    """bool: which weights are kept, drawn at once, as dropout of the whole matrix draws it; None where all are."""
    if not options.dropout_rate:
        return None
    noise_shape = options.noise_shape(logits_shape(q.shape, k.shape, MEMORY_LENGTH))
    ones = mtf.ones(q.mesh, noise_shape)
    return mtf.greater(mtf.dropout(ones, True, rate=options.dropout_rate, name=DROPOUT), 0.0)


def _padding_told(memory: Tokens, blocks: Blocks, mesh: mtf.Mesh) -> Tokens:
    """The tokens, with segments where there is padding."""
    if memory.segments is not None or not blocks.padding:
        return memory
    return dataclasses.replace(memory, segments=mtf.ones(mesh, [(MEMORY_LENGTH, blocks.used)], tf.int32))


@dataclasses.dataclass(frozen=True)
class _Memory:
    """What queries attend to: all of it, cut into blocks, or one block.

    kept: which weights dropout keeps, where that is drawn before. number: of the block, where it is drawn in each.
    """

    k: mtf.Tensor
    v: mtf.Tensor
    tokens: Tokens
    kept: mtf.Tensor | None
    number: mtf.Tensor | None = None

    def cut(self, blocks: Blocks) -> _Memory:
        """What has `memory_length` is cut: one block has every n-th position."""
        inside, block = mtf.Dimension(MEMORY_LENGTH, blocks.size), mtf.Dimension(MEMORY_BLOCKS, blocks.count)

        def cut(x: mtf.Tensor) -> mtf.Tensor:
            if not x.shape.has(MEMORY_LENGTH):
                return x
            x = blocks.padded(x, MEMORY_LENGTH)
            return mtf.replace_dimensions(x, x.shape.get_dim_by_name(MEMORY_LENGTH), [inside, block])

        return self._map(cut)

    def numbered(self, blocks: Blocks) -> _Memory:
        """With the number of each block."""
        return dataclasses.replace(self, number=mtf.range(self.k.mesh, mtf.Dimension(MEMORY_BLOCKS, blocks.count)))

    def sliced(self) -> list[mtf.Tensor]:
        """The tensors that differ between blocks."""
        found: list[mtf.Tensor] = []

        def collect(x: mtf.Tensor) -> mtf.Tensor:
            if x.shape.has(MEMORY_BLOCKS):
                found.append(x)
            return x

        self._map(collect)
        return found

    def block(self, parts: list[mtf.Tensor]) -> _Memory:
        """One block, of the parts of `sliced`."""
        left = iter(parts)
        return self._map(lambda x: next(left) if x.shape.has(MEMORY_BLOCKS) else x)

    def _map(self, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> _Memory:
        kept, number = (None if x is None else fn(x) for x in (self.kept, self.number))
        return _Memory(fn(self.k), fn(self.v), self.tokens.map(fn), kept, number)


class _LeanAttention:
    """One call, its memory cut into blocks."""

    def __init__(
        self,
        q: mtf.Tensor,
        memory: _Memory,
        pattern: AttentionPattern,
        options: AttentionOptions,
        drawn: DropoutInBlocks | None,
    ) -> None:
        """drawn: where each block draws which weights are kept, the gradient's again."""
        self._q, self._memory, self._pattern, self._options, self._drawn = q, memory, pattern, options, drawn
        self._dtype = logits_dtype(q, options)
        self._rows = logits_shape(q.shape, memory.k.shape, MEMORY_LENGTH)[:-1]
        self._means = self._rows + [q.shape.get_dim_by_name(D_KV)]

    def result(self) -> mtf.Tensor:
        """[rows, d_kv], in the type of the logits."""
        y, _ = mtf.custom_gradient(self._forward, self._backward, [self._q, self._memory.k, self._memory.v])
        return y

    def _forward(self, *_: mtf.Tensor) -> list[mtf.Tensor]:
        """Means and the logarithms of the sums of exponentials, by running maximum, sum and mean."""

        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            top, total, mean = carried
            memory = self._memory.block(parts)
            logits = self._logits(memory)
            new_top = mtf.maximum(top, mtf.reduce_max(logits, reduced_dim=MEMORY_LENGTH))
            terms, shrinking = mtf.exp(logits - new_top), mtf.exp(top - new_top)
            total = total * shrinking + mtf.reduce_sum(terms, reduced_dim=MEMORY_LENGTH)
            return [new_top, total, mean * shrinking + self._weighted(terms, memory)], []

        top, total, mean = self._over_blocks(step, [*self._initial(), self._zeros(self._means)])
        total = mtf.where(mtf.greater(total, 0.0), total, 1.0)  # 0 in a row that sees nothing
        return [mean / total, top + mtf.log(total)]

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> list[mtf.Tensor | None]:
        """The gradient of sums of exp(logits - log_total) v and exp(logits - log_total), which are mean and 1.

        A softmax does not change with what all logits are shifted by, so that the shift counts as a constant.
        """
        (y, log_total), (dy, dlog_total) = outputs, output_grads

        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            total, mean = carried
            memory = self._memory.block(parts)
            terms = mtf.exp(self._logits(memory) - log_total)
            total += mtf.reduce_sum(terms, reduced_dim=MEMORY_LENGTH)
            return [total, mean + self._weighted(terms, memory)], []

        initial = [self._zeros(self._rows), self._zeros(self._means)]
        total, mean = self._over_blocks(step, initial, recompute="nothing")
        if isinstance(extra := extra_logit(self._options, self._rows, self._dtype), mtf.Tensor):
            total += mtf.exp(extra - log_total)
        dtotal = self._zeros(self._rows) if dlog_total is None else dlog_total
        if dy is None:
            return mtf.gradients([total], all_inputs, [dtotal])
        dtotal -= mtf.reduce_sum(y * dy, reduced_dim=D_KV)
        return mtf.gradients([total, mean], all_inputs, [dtotal, dy])

    def _over_blocks(
        self, step: Callable[..., object], initial: list[mtf.Tensor], recompute: str | None = None
    ) -> list[mtf.Tensor]:
        sliced = self._memory.sliced()
        block = self._memory.k.shape.get_dim_by_name(MEMORY_BLOCKS)
        carried, _ = mtf.scan(step, initial, sliced, block, recompute=recompute, name="lean_attention")
        return carried

    def _initial(self) -> list[mtf.Tensor]:
        """Maximum and sum before the first block."""
        extra = extra_logit(self._options, self._rows, self._dtype)
        if extra is None:
            lowest = masked_value(self._dtype) / 2  # above it, so that the terms of what is not visible are 0
            return [mtf.fill(self._q.mesh, lowest, self._rows, self._dtype), self._zeros(self._rows)]
        one = mtf.ones(self._q.mesh, self._rows, self._dtype)
        return [one * extra, one]

    def _logits(self, memory: _Memory) -> mtf.Tensor:
        pattern = dataclasses.replace(self._pattern, memory=memory.tokens)
        return make_logits(self._q, memory.k, pattern, self._options, MEMORY_LENGTH)[0]

    def _weighted(self, terms: mtf.Tensor, memory: _Memory) -> mtf.Tensor:
        kept = memory.kept
        if self._drawn is not None and memory.number is not None:
            kept = self._drawn.block(memory.number)
        if kept is not None:
            scaled = terms * (1.0 / (1.0 - self._options.dropout_rate))
            terms = mtf.where(kept, scaled, 0.0, output_shape=terms.shape)
        terms = mtf.cast(terms, memory.v.dtype)
        return mtf.cast(mtf.einsum([terms, memory.v], output_shape=self._means), self._dtype)

    def _zeros(self, shape: mtf.Shape) -> mtf.Tensor:
        return mtf.zeros(self._q.mesh, shape, self._dtype)
