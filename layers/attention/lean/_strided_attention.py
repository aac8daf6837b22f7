"""Lean attention under any mask, to a memory in blocks of every n-th position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import meshtf as mtf
from meshtf.layers.attention._dropped import without_dropped
from meshtf.layers.attention._running_softmax import (
    State,
    block_sums,
    finished,
    initial_state,
    sum_gradients,
    with_block,
)
from meshtf.layers.attention._scores import extra_logit, logits_dtype, logits_shape, make_logits
from meshtf.layers.attention.lean._blocked_memory import MEMORY_BLOCKS, BlockedMemory
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, MEMORY_LENGTH


class StridedAttention:
    """One call, with its memory cut into blocks."""

    def __init__(
        self,
        q: mtf.Tensor,
        memory: BlockedMemory,
        pattern: AttentionPattern,
        options: AttentionOptions,
        drawn: mtf.DropoutInBlocks | None,
    ) -> None:
        """Keeps the operands. With `drawn`, each block draws the weights that are kept, in the gradient once more."""
        self._q, self._memory, self._pattern, self._options, self._drawn = q, memory, pattern, options, drawn
        self._dtype = logits_dtype(q, options)
        self._rows = logits_shape(q.shape, memory.k.shape, MEMORY_LENGTH)[:-1]
        self._means = self._rows + [q.shape[D_KV]]

    def result(self) -> mtf.Tensor:
        """The means [rows, d_kv], in the logits' dtype."""
        y, _ = mtf.custom_gradient(self._forward, self._backward, [self._q, self._memory.k, self._memory.v])
        return y

    def _forward(self, *_: mtf.Tensor) -> list[mtf.Tensor]:
        """The means, and the logarithms of the sums of exponentials, by a running maximum, sum and mean."""

        def step(carried: State, parts: list[mtf.Tensor]) -> tuple[State, State]:
            memory = self._memory.block(parts)
            return with_block(carried, self._logits(memory), lambda terms: self._weighted(terms, memory)), []

        initial = initial_state(self._q.mesh, self._rows, self._means[-1], self._dtype, self._options)
        return finished(self._over_blocks(step, initial))

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> list[mtf.Tensor | None]:
        """The gradients of the sums of all blocks, whose scores are computed again."""
        log_total, *given = sum_gradients(outputs, output_grads)

        def step(carried: State, parts: list[mtf.Tensor]) -> tuple[State, State]:
            memory = self._memory.block(parts)
            own = block_sums(self._logits(memory), log_total, lambda terms: self._weighted(terms, memory))
            return [x + y for x, y in zip(carried, own, strict=True)], []

        initial = [self._zeros(self._rows), self._zeros(self._means)]
        total, mean = self._over_blocks(step, initial, recompute="nothing")
        if isinstance(extra := extra_logit(self._options, self._rows, self._dtype), mtf.Tensor):
            total += mtf.exp(extra - log_total)
        # These are gradients of the sums above, which have the gradients of the softmax: see `sum_gradients`.
        return mtf.gradients([total, mean], all_inputs, given)

    def _over_blocks(
        self, step: Callable[..., object], initial: list[mtf.Tensor], recompute: str | None = None
    ) -> list[mtf.Tensor]:
        sliced = self._memory.sliced()
        block = self._memory.k.shape[MEMORY_BLOCKS]
        carried, _ = mtf.scan(step, initial, sliced, block, recompute=recompute, name="lean_attention")
        return carried

    def _logits(self, memory: BlockedMemory) -> mtf.Tensor:
        pattern = dataclasses.replace(self._pattern, memory=memory.tokens)
        return make_logits(self._q, memory.k, pattern, self._options, MEMORY_LENGTH)[0]

    def _weighted(self, terms: mtf.Tensor, memory: BlockedMemory) -> mtf.Tensor:
        kept = memory.kept
        if self._drawn is not None and memory.number is not None:
            kept = self._drawn.block(memory.number)
        terms = without_dropped(terms, kept, self._options.dropout_rate).astype(memory.v.dtype)
        return mtf.einsum([terms, memory.v], output_shape=self._means).astype(self._dtype)

    def _zeros(self, shape: mtf.Shape) -> mtf.Tensor:
        return mtf.zeros(self._q.mesh, shape, self._dtype)
