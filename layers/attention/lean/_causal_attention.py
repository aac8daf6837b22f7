"""Lean attention of a sequence with itself under a causal mask: it does not compute what lies ahead.

The sequence is cut into blocks, and the running sums of a softmax go from one part of the scores to the next. With four
blocks:

    blocks themselves    each sees itself
    level 0              2 and 3 see 0 and 1
    level 1              1 sees 0, and 3 sees 2

`_halving.py` has a picture of the levels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention._dropped import is_independent, kept_weights, noise_shape_of, without_dropped
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
from meshtf.layers.attention.lean._halving import BLOCKS, PAIRS, QUERY_BLOCKS, Halving, Level
from meshtf.layers.attention.options import DROPOUT, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, LENGTH, MEMORY_LENGTH, Tokens, is_index

MOST_DRAWN_AT_ONCE = 32
"""The most blocks of a sequence for which kept weights are drawn: each block adds operations of its own to the
program.
"""

SMALL_BLOCK = 16
"""A number of positions whose halves are not worth cutting: they would hardly divide over a mesh axis, or save
memory.
"""


def halving_of(
    q: mtf.Tensor, k: mtf.Tensor, pattern: AttentionPattern, options: AttentionOptions, block_size: int
) -> Halving | None:
    """How to cut the sequence so that hidden scores are left out; None if they are not known while the graph is built.

    Blocks are half as large as `block_size`, so they hold no more scores than a strided block of the memory.
    """
    query, memory, mask = pattern.query, pattern.memory, pattern.mask
    if not mask.is_causal or mask.sees_prefix or not q.shape.has(LENGTH):
        return None
    length = q.shape[LENGTH].size
    # A halving cuts queries and memory at the same places.
    if k.shape[MEMORY_LENGTH].size != length:
        return None
    # Only if positions are indices does a place in the sequence say what lies ahead.
    if not (is_index(query.positions, LENGTH) and is_index(memory.positions, MEMORY_LENGTH)):
        return None
    halving = Halving.of_blocks(length, max(min(block_size, SMALL_BLOCK), (block_size + 1) // 2))
    # Drawn weights would add too many operations. Strided blocks draw theirs in one loop.
    if is_independent(q, k, options) and halving.count > MOST_DRAWN_AT_ONCE:
        return None
    return halving


class CausalAttention:
    """One call. The sequence is in blocks.

    Each block attends to itself, and then to the rectangles of each level of the halving.
    """

    def __init__(
        self,
        halving: Halving,
        q: mtf.Tensor,
        k: mtf.Tensor,
        v: mtf.Tensor,
        pattern: AttentionPattern,
        options: AttentionOptions,
    ) -> None:
        self._halving, self._options, self._dtype = halving, options, logits_dtype(q, options)
        self._boxes = _boxes(q, k, options, halving) if is_independent(q, k, options) else None
        kept = None if self._boxes is not None else kept_weights(q, k, options)
        of_queries = kept if kept is not None and kept.shape.has(LENGTH) else None
        query, memory = self._in_order(pattern.query, LENGTH), self._in_order(pattern.memory, MEMORY_LENGTH)
        self._pattern = dataclasses.replace(pattern, query=query, memory=memory)
        # The blocks' dimension stands where products want it, so that no product transposes.
        self._q = halving.cut(_with_last(q, LENGTH, D_KV), LENGTH)
        k, v = (halving.cut(_with_last(x, MEMORY_LENGTH, D_KV), MEMORY_LENGTH) for x in (k, v))
        self._kept = None if of_queries is None else halving.cut(of_queries, LENGTH)
        kept = None if kept is None or of_queries is not None else halving.cut(kept, MEMORY_LENGTH)
        self._memory = BlockedMemory(k, v, memory, kept)
        self._rows = self._q.shape[:-1]
        self._levels = halving.levels(pattern.mask.window)

    def result(self) -> mtf.Tensor:
        """The means [.., length, d_kv], in the logits' dtype."""
        y, _ = mtf.custom_gradient(self._forward, self._backward, [self._q, self._memory.k, self._memory.v])
        return self._halving.joined(y)

    def _forward(self, *_: mtf.Tensor) -> list[mtf.Tensor]:
        """The means, and the logarithms of the sums of exponentials."""
        d_kv = self._q.shape[-1]
        state = initial_state(self._q.mesh, self._rows, d_kv, self._dtype, self._options)
        state = self._blocks_themselves().attended(state)
        for level in self._levels:
            # Levels run one after the other, so that only one level's scores are in memory.
            rectangles = self._rectangles(level, after=state)
            own = rectangles.attended([level.seeing(x) for x in state])
            state = [level.with_seeing(x, new) for x, new in zip(state, own, strict=True)]
        return finished(state)

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> list[mtf.Tensor | None]:
        """The gradients of the sums of all blocks, whose scores are computed again."""
        given = sum_gradients(outputs, output_grads)
        log_total = given[0]
        sums, others = self._blocks_themselves().sums(log_total), given[1:]
        if isinstance(extra := extra_logit(self._options, self._rows, self._dtype), mtf.Tensor):
            sums[0] += mtf.exp(extra - log_total)
        found = mtf.gradients(sums, all_inputs, others)
        for level in self._levels:
            before = [x for x in found if x is not None]
            rectangles = self._rectangles(level, after=before)
            own_log_total, *others = (level.seeing(mtf.depend(x, before)) for x in given)
            own = mtf.gradients(rectangles.sums(own_log_total), all_inputs, others)
            found = [_sum(x, y) for x, y in zip(found, own, strict=True)]
        return found

    def _in_order(self, tokens: Tokens, name: str) -> Tokens:
        """The tokens in blocks, with the padding behind all others."""
        assert tokens.positions is not None
        positions = self._halving.positions(tokens.positions.mesh, name, tokens.positions.dtype)
        cut = tokens.map(lambda x: self._halving.cut(x, name))
        return dataclasses.replace(cut, positions=positions)

    def _blocks_themselves(self) -> _Rectangles:
        begins = np.arange(self._halving.count) * self._halving.size
        draw = self._drawn([(BLOCKS, begins.size)], begins, begins)
        return _Rectangles(self._q, self._memory, self._pattern, self._how(self._kept, draw))

    def _rectangles(self, level: Level, after: Sequence[mtf.Tensor]) -> _Rectangles:
        """The rectangles of a level.

        Their scores wait for `after`; without that, all levels would hold scores at once.
        """

        def seeing(x: mtf.Tensor) -> mtf.Tensor:
            return level.seeing(x)

        # All tokens that they see lie behind them, so nothing needs to be masked as ahead.
        mask = dataclasses.replace(self._pattern.mask, is_causal=False)
        query = self._pattern.query.map(seeing)
        pattern = dataclasses.replace(self._pattern, mask=mask, query=query)
        k, v = (mtf.depend(x, after) for x in (self._memory.k, self._memory.v))
        memory = dataclasses.replace(self._memory, k=k, v=v).map(level.seen)
        size = self._halving.size
        places = [(PAIRS, level.num_pairs), (QUERY_BLOCKS, level.reach)]
        draw = self._drawn(places, level.begins_of_seeing(size), level.begins_of_seen(size))
        if draw is not None:
            memory = memory.numbered(level.reach)
        kept = None if self._kept is None else seeing(self._kept)
        return _Rectangles(seeing(mtf.depend(self._q, after)), memory, pattern, self._how(kept, draw))

    def _how(self, kept: mtf.Tensor | None, draw: _Draw | None) -> _How:
        return _How(self._options, self._dtype, kept, draw)

    def _drawn(self, places: list[tuple[str, int]], of_queries: np.ndarray, of_memory: np.ndarray) -> _Draw | None:
        """A function that draws which weights are kept, each by itself: bool [places, .., length, memory_length].

        Its argument is the number of the memory's block, or None for the first.
        """
        boxes, size = self._boxes, self._halving.size
        if boxes is None:
            return None
        mesh, flat = self._q.mesh, mtf.Dimension(BLOCKS, of_queries.size)

        def draw(number: mtf.Tensor | None) -> mtf.Tensor:
            first = mtf.constant(mesh, of_queries.reshape(-1), [flat], tf.int32)
            seen = mtf.constant(mesh, of_memory.reshape(-1), [flat], tf.int32)
            seen = seen if number is None else seen + number * size
            return boxes.drawn({LENGTH: first, MEMORY_LENGTH: seen}).unflatten(BLOCKS, places)

        return draw


_Draw = Callable[["mtf.Tensor | None"], mtf.Tensor]


@dataclasses.dataclass(frozen=True)
class _How:
    """Options, and the weights that dropout keeps.

    kept: weights that are drawn before and differ by query.
    draw: draws the weights, for a numbered block.
    """

    options: AttentionOptions
    dtype: tf.DType
    kept: mtf.Tensor | None
    draw: _Draw | None


@dataclasses.dataclass(frozen=True)
class _Rectangles:
    """Queries side by side, and the memory that they see, in blocks or at once."""

    q: mtf.Tensor
    memory: BlockedMemory
    pattern: AttentionPattern
    how: _How

    def attended(self, state: State) -> State:
        """The state of these rows after they attend to the memory here."""
        shapes = [x.shape for x in state]

        def step(carried: State, memory: BlockedMemory) -> State:
            return with_block(carried, self._logits(memory), lambda terms: self._weighted(terms, memory))

        found = self._over_blocks(step, [self._as_rows(x) for x in state])
        return [x.transpose(shape) for x, shape in zip(found, shapes, strict=True)]

    def sums(self, log_total: mtf.Tensor) -> State:
        """The sums of exp(logits - log_total), and of values weighted by these, whose gradients the backward pass
        takes.
        """
        shapes = [log_total.shape, log_total.shape + [self.q.shape[D_KV]]]
        log_total = self._as_rows(log_total)

        def step(carried: State, memory: BlockedMemory) -> State:
            own = block_sums(self._logits(memory), log_total, lambda terms: self._weighted(terms, memory))
            return [x + y for x, y in zip(carried, own, strict=True)]

        initial = [mtf.zeros(self.q.mesh, shape, self.how.dtype) for shape in (self._rows, self._means)]
        found = self._over_blocks(step, initial, recompute="nothing")
        return [x.transpose(shape) for x, shape in zip(found, shapes, strict=True)]

    def _over_blocks(
        self, step: Callable[[State, BlockedMemory], State], initial: State, recompute: str | None = None
    ) -> State:
        if not self.memory.k.shape.has(MEMORY_BLOCKS):
            return step(initial, self.memory)

        def one(carried: State, parts: list[mtf.Tensor]) -> tuple[State, State]:
            return step(carried, self.memory.block(parts)), []

        block = self.memory.k.shape[MEMORY_BLOCKS]
        carried, _ = mtf.scan(one, initial, self.memory.sliced(), block, recompute=recompute, name="lean_attention")
        return carried

    @property
    def _rows(self) -> mtf.Shape:
        """The dimensions of rows, in the order of the logits."""
        k = mtf.Shape([d for d in self.memory.k.shape if d.name != MEMORY_BLOCKS])
        return logits_shape(self.q.shape, k, MEMORY_LENGTH)[:-1]

    @property
    def _means(self) -> mtf.Shape:
        return self._rows + [self.q.shape[D_KV]]

    def _as_rows(self, x: mtf.Tensor) -> mtf.Tensor:
        return x.transpose(self._means if x.shape.has(D_KV) else self._rows)

    def _logits(self, memory: BlockedMemory) -> mtf.Tensor:
        pattern = dataclasses.replace(self.pattern, memory=memory.tokens)
        return make_logits(self.q, memory.k, pattern, self.how.options, MEMORY_LENGTH)[0]

    def _weighted(self, terms: mtf.Tensor, memory: BlockedMemory) -> mtf.Tensor:
        kept = self.how.kept if memory.kept is None else memory.kept
        if self.how.draw is not None:
            kept = self.how.draw(memory.number)
        terms = without_dropped(terms, kept, self.how.options.dropout_rate).astype(memory.v.dtype)
        return mtf.einsum([terms, memory.v], output_shape=self._means).astype(self.how.dtype)


def _boxes(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, halving: Halving) -> mtf.DropoutInBoxes:
    inside = {name: mtf.Dimension(name, halving.size) for name in (LENGTH, MEMORY_LENGTH)}
    return mtf.DropoutInBoxes(q.mesh, noise_shape_of(q, k, options), inside, rate=options.dropout_rate, name=DROPOUT)


def _with_last(x: mtf.Tensor, *names: str) -> mtf.Tensor:
    last = [x.shape[name] for name in names]
    return x.transpose([*(d for d in x.shape if d not in last), *last])


def _sum(x: mtf.Tensor | None, y: mtf.Tensor | None) -> mtf.Tensor | None:
    return y if x is None else x if y is None else x + y
