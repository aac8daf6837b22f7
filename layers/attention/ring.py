"""Attention for a sequence that is split over cores: keys and values travel round a ring.

Each place has the queries of its own block, and sees one block of keys and values at a time. Then the blocks move one
place on. With four blocks:

    place     0     1     2     3
    step 0    b0    b1    b2    b3
    step 1    b3    b0    b1    b2
    step 2    b2    b3    b0    b1
    step 3    b1    b2    b3    b0

After n - 1 moves every query has seen every key, and a running softmax has summed up what it saw. Under a causal mask,
half of these pairs would be hidden; `_zigzag` arranges blocks so that this half is left out evenly.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, ShapeError
from meshtf.layers.attention._dropped import is_independent, kept_weights, noise_shape_of, without_dropped
from meshtf.layers.attention._running_softmax import block_sums, finished, initial_state, sum_gradients, with_block
from meshtf.layers.attention._scores import (
    attend,
    check_operands,
    extra_logit,
    logits_dtype,
    logits_shape,
    make_logits,
)
from meshtf.layers.attention._zigzag import (
    HALVES,
    LENGTH_IN_BLOCK,
    MEMORY_IN_BLOCK,
    Half,
    Ring,
    halves_of,
    picked,
    replaced,
)
from meshtf.layers.attention.options import DEFAULT_OPTIONS, DROPOUT, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, LENGTH, MEMORY_LENGTH, Tokens, as_memory, as_sequence

Tensors = list[mtf.Tensor]


@language_function
def ring_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
    num_blocks: int = 8,
) -> mtf.Tensor:
    """Computes the same as `dot_product_attention`, for self-attention under a layout that splits `length`.

    Ring attention (Liu, Zaharia & Abbeel 2023) cuts the sequence into n blocks. Their keys and values go from core to
    core, n - 1 times. Each core attends with its own queries to the block that it has now, by a running maximum and
    sum. The gradient sends the blocks round again, together with their gradients. No core holds all keys, or scores of
    more than one pair of blocks. If dropout drops each weight independently, every core draws which weights to keep for
    its current block, and draws them again in the gradient.

    Under a causal mask, scores of tokens ahead are not computed. Blocks then have an early and a late part of the
    sequence (Brandon et al. 2023), so that every core has the same work at every step.

    Args:
      q: [.., length, heads, (queries_per_head), d_kv].
      k: [.., length, (heads), d_kv]: the same sequence; its length may also be called `memory_length`.
      v: the same.
      pattern: who sees whom, and the bias. Under a causal mask the positions grow along each segment. The tensors of
        its tokens are over `length` and `memory_length`.
      options: as for `lean_attention`, dropout included.
      is_training: whether weights are dropped.
      num_blocks: a multiple of the cores over which `length` is split. With more blocks, scores take less memory.

    Raises:
      ShapeError: as for `dot_product_attention`, or `length` and `memory_length` differ.
      GraphError: as for `dot_product_attention`, or `num_blocks` is not positive.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> h = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> q, (k, v) = mtf.layers.project_queries(h, config), mtf.layers.project_keys_and_values(h, config)
      >>> causal = mtf.layers.AttentionMask(is_causal=True)
      >>> pattern = mtf.layers.AttentionPattern.within(mtf.layers.Tokens.along(h), causal)
      >>> mtf.layers.ring_attention(q, k, v, pattern, num_blocks=4).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    k, v, mask = as_sequence(k), as_sequence(v), pattern.mask
    length = _checked_length(q, k, v)
    if num_blocks < 1:
        raise GraphError(f"num_blocks must be at least 1, and is {num_blocks}")
    options = options.in_mode(is_training)
    # One block is plain attention, without a ring and without its scan.
    if num_blocks == 1:
        return attend(q, as_memory(k), as_memory(v), pattern, options, MEMORY_LENGTH)
    # With a prefix, tokens see some that lie ahead, so no half could be left out.
    ring = Ring(length, num_blocks, 2 if mask.is_causal and not mask.sees_prefix else 1)
    # Weights that are dropped alike along the memory or the queries are few enough to be drawn once and carried along.
    by_itself = is_independent(q, as_memory(k), options)
    kept = None if by_itself else kept_weights(q, as_memory(k), options)
    around = _Around.made(ring, k, v, _padding_told(pattern.memory, ring, q.mesh), kept)
    queries = pattern.query.map(lambda x: ring.cut(x, LENGTH_IN_BLOCK))
    of_queries = None if kept is None or around.kept is not None else ring.cut(kept, LENGTH_IN_BLOCK)
    how = _How(options, of_queries, _drawn_in_boxes(q, as_memory(k), options, ring) if by_itself else None)
    pattern = dataclasses.replace(pattern, query=queries)
    y = _RingAttention(ring, ring.cut(q, LENGTH_IN_BLOCK), around, pattern, how).result()
    return ring.joined(y).astype(q.dtype).transpose(q.shape)


def _checked_length(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> int:
    of_queries, of_memory = (x.shape[LENGTH].size for x in (q, k))
    if of_queries != of_memory:
        raise ShapeError(
            f"ring attention is self-attention, so it needs as many keys as queries; there are {of_queries} queries "
            f"and {of_memory} keys"
        )
    check_operands(q, k, v)
    return of_queries


def _drawn_in_boxes(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, ring: Ring) -> mtf.DropoutInBoxes:
    """Which weights are kept, of a half of the queries with a half of the memory at each place of the ring."""
    whole = noise_shape_of(q, k, options)
    names = {LENGTH: LENGTH_IN_BLOCK, MEMORY_LENGTH: MEMORY_IN_BLOCK}
    inside = {name: mtf.Dimension(own, ring.size) for name, own in names.items()}
    return mtf.DropoutInBoxes(q.mesh, whole, inside, rate=options.dropout_rate, name=DROPOUT)


def _padding_told(memory: Tokens, ring: Ring, mesh: mtf.Mesh) -> Tokens:
    """The tokens, with segments if there is padding."""
    if memory.segments is not None or not ring.padding:
        return memory
    return dataclasses.replace(memory, segments=mtf.ones(mesh, [(MEMORY_LENGTH, ring.used)], tf.int32))


@dataclasses.dataclass(frozen=True)
class _Around:
    """The tensors that go round: keys, values, their tokens, and the weights that dropout keeps. One half, or all.

    step: how many places they have moved.
    """

    k: mtf.Tensor
    v: mtf.Tensor
    tokens: Tokens
    kept: mtf.Tensor | None
    step: mtf.Tensor | int = 0

    @classmethod
    def made(cls, ring: Ring, k: mtf.Tensor, v: mtf.Tensor, tokens: Tokens, kept: mtf.Tensor | None) -> _Around:
        whole = cls(k, v, tokens, kept if kept is not None and kept.shape.has(MEMORY_LENGTH) else None)
        return whole.map(lambda x: ring.cut(x, MEMORY_IN_BLOCK))

    def map(self, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> _Around:
        kept = None if self.kept is None else fn(self.kept)
        return _Around(fn(self.k), fn(self.v), self.tokens.map(fn), kept, self.step)

    def flat(self) -> Tensors:
        """The tensors in a list, keys and values first."""
        found: Tensors = []
        self.map(lambda x: found.append(x) or x)
        return found

    def of(self, tensors: Tensors) -> _Around:
        """The same with other tensors, in the order of `flat`."""
        left = iter(tensors)
        return self.map(lambda _: next(left))


class _RingAttention:
    """One call, with the sequence in blocks round a ring."""

    def __init__(self, ring: Ring, q: mtf.Tensor, around: _Around, pattern: AttentionPattern, how: _How) -> None:
        self._ring, self._q, self._around, self._pattern = ring, q, around, pattern
        self._options, self._kept, self._boxes = how.options, how.kept, how.boxes
        self._dtype = logits_dtype(q, how.options)
        one_q, one_k = (mtf.Shape([d for d in x.shape if d.name != HALVES]) for x in (q, around.k))
        self._rows = logits_shape(one_q, one_k, MEMORY_IN_BLOCK)[:-1]
        self._means = self._rows + [q.shape[D_KV]]

    def result(self) -> mtf.Tensor:
        """The means [halves, rows, d_kv], in the logits' dtype."""
        y, _ = mtf.custom_gradient(self._forward, self._backward, [self._q, self._around.k, self._around.v])
        return y

    def _forward(self, *_: mtf.Tensor) -> Tensors:
        """The means, and the logarithms of the sums of exponentials, over [halves, ..]."""
        # The own block comes first, outside the loop, because under a causal mask it has three pairs of halves and
        # others two.
        state = self._attended(self._initial(), self._around)

        def step(carried: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
            around, flat = self._arrived(carried)
            state = self._attended(self._in_halves(flat), around)
            return [mtf.add(around.step, 1), *around.flat(), *itertools.chain(*state)], []

        carried = self._round(step, [*self._around.flat(), *itertools.chain(*state)])
        state = self._in_halves(carried[-3 * self._ring.halves :])
        return [mtf.stack(list(xs), HALVES) for xs in zip(*map(finished, zip(*state, strict=True)), strict=True)]

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> Tensors:
        """The gradients of the sums of all blocks, whose scores are computed again.

        The gradients of keys and values travel with them, one place further each time, and end at their own place.
        """
        dsums, others = _SumGradients(*sum_gradients(outputs, output_grads)), all_inputs[len(explicit_inputs) :]

        def step(carried: Tensors, _: Tensors) -> tuple[Tensors, Tensors]:
            around, (dk, dv, *rest) = self._arrived(carried)
            own_dq, own_dk, own_dv, *own = self._gradients(around, others, dsums)
            rest = [x + y for x, y in zip(rest, [own_dq, *own], strict=True)]
            return [mtf.add(around.step, 1), *around.flat(), _sent(dk + own_dk), _sent(dv + own_dv), *rest], []

        dq, dk, dv, *own = self._gradients(self._around, others, dsums)
        initial = [*self._around.flat(), *map(mtf.zeros_like, [dk, dv]), dq, *own]
        # Values kept here would only serve second derivatives, and scores are what this attention must not store.
        carried = self._round(step, initial, recompute="nothing")
        # A block visits num_blocks - 1 other cores, and its gradients are sent after each visit. So they end at home.
        home_dk, home_dv, dq, *own = carried[-3 - len(others) :]
        found = [dq, dk + home_dk, dv + home_dv, *own]
        return [grad.astype(x.dtype) for grad, x in zip(found, all_inputs, strict=True)]

    def _gradients(self, around: _Around, others: Sequence[mtf.Tensor], dsums: _SumGradients) -> Tensors:
        """The gradients of queries, keys, values and others for the block that is here, in the logits' dtype."""
        ys, grads = [], []
        for of_queries, of_memory in self._pairs(around.step):
            log_total, dtotal, dmean = (picked(xs, of_queries) for xs in dsums.in_halves(self._ring.halves))
            logits = self._logits(of_queries, around, of_memory)
            weighted = self._weighting(of_queries, around, of_memory)
            ys += block_sums(logits, log_total, weighted, MEMORY_IN_BLOCK)
            grads += [dtotal, dmean]
        extra = extra_logit(self._options, self._rows, self._dtype)
        # The extra logit belongs to the row and not to a block, so it counts once.
        if isinstance(extra, mtf.Tensor) and isinstance(around.step, int):  # once for all steps
            ys.append(mtf.exp(extra - dsums.log_total))
            grads.append(dsums.dtotal.transpose(ys[-1].shape))
        xs = [self._q, around.k, around.v, *others]
        found = mtf.gradients(ys, xs, grads)
        return [
            mtf.zeros(x.mesh, x.shape, self._dtype) if grad is None else grad.astype(self._dtype)
            for x, grad in zip(xs, found, strict=True)
        ]

    def _round(self, step: Callable[..., object], initial: Tensors, recompute: str | None = None) -> Tensors:
        """The values carried after all other blocks have come. `initial` begins with the tensors that go round."""
        steps = mtf.Dimension("ring_steps", self._ring.num_blocks - 1)
        one = mtf.ones(self._q.mesh, [], tf.int32)
        carried, _ = mtf.scan(step, [one, *initial], [], steps, recompute=recompute, name="ring_attention")
        return carried

    def _arrived(self, carried: Tensors) -> tuple[_Around, Tensors]:
        """The tensors that came from the neighbour, and the other values carried."""
        number, *rest = carried
        travelling = self._around.of(rest).map(_sent)
        return dataclasses.replace(travelling, step=number), rest[len(travelling.flat()) :]

    def _attended(self, state: list[Tensors], around: _Around) -> list[Tensors]:
        """The running maximum, sum and mean of each half, with the block that is here."""
        for of_queries, of_memory in self._pairs(around.step):
            logits = self._logits(of_queries, around, of_memory)
            weighted = self._weighting(of_queries, around, of_memory)
            own = with_block([picked(xs, of_queries) for xs in state], logits, weighted, MEMORY_IN_BLOCK)
            state = [replaced(xs, of_queries, new) for xs, new in zip(state, own, strict=True)]
        return state

    def _pairs(self, step: mtf.Tensor | int) -> list[tuple[Half, Half]]:
        """Pairs of halves, queries and memory, that may see each other in the block that is here after `step` steps.

        The late half of the queries sees the first half of any block. Two like halves see each other as well: the first
        ones if the block's first half is earlier, else the late ones. So each step has two pairs of four, at every
        place.
        """
        if self._ring.halves == 1:
            return [(0, 0)]
        if isinstance(step, int):  # its own block: no half sees the one ahead
            return [(1, 0), (0, 0), (1, 1)]
        first = self._ring.is_earlier(self._q.mesh, step)
        return [(1, 0), (first, first)]

    def _logits(self, of_queries: Half, around: _Around, of_memory: Half) -> mtf.Tensor:
        def own(x: mtf.Tensor) -> mtf.Tensor:
            return picked(halves_of(x, self._ring.halves), of_queries)

        memory = around.map(lambda x: picked(halves_of(x, self._ring.halves), of_memory))
        pattern = dataclasses.replace(self._pattern, query=self._pattern.query.map(own), memory=memory.tokens)
        return make_logits(own(self._q), memory.k, pattern, self._options, MEMORY_IN_BLOCK)[0]

    def _weighting(self, of_queries: Half, around: _Around, of_memory: Half) -> Callable[[mtf.Tensor], mtf.Tensor]:
        """A function that sums the values of a half of the block that is here, weighted by its argument."""
        count = self._ring.halves
        v = picked(halves_of(around.v, count), of_memory)
        kept = picked(halves_of(around.kept, count), of_memory) if around.kept is not None else None
        if self._kept is not None:
            kept = picked(halves_of(self._kept, count), of_queries)
        if self._boxes is not None:
            of_step = {LENGTH: (0, of_queries), MEMORY_LENGTH: (around.step, of_memory)}
            kept = self._boxes.drawn({name: self._ring.begins(v.mesh, *where) for name, where in of_step.items()})

        def weighted(terms: mtf.Tensor) -> mtf.Tensor:
            terms = without_dropped(terms, kept, self._options.dropout_rate).astype(v.dtype)
            return mtf.einsum([terms, v], output_shape=self._means).astype(self._dtype)

        return weighted

    def _initial(self) -> list[Tensors]:
        """The maximum, sum and mean of each half before the first block."""
        state = initial_state(self._q.mesh, self._rows, self._means[-1], self._dtype, self._options)
        return [[x] * self._ring.halves for x in state]

    def _in_halves(self, flat: Sequence[mtf.Tensor]) -> list[Tensors]:
        count = self._ring.halves
        return [list(flat[start : start + count]) for start in range(0, 3 * count, count)]


def _sent(x: mtf.Tensor) -> mtf.Tensor:
    """x one place further round the ring."""
    return mtf.roll(x, 1, LENGTH) if x.shape.has(LENGTH) else x


@dataclasses.dataclass(frozen=True)
class _SumGradients:
    """Tensors over [halves, ..]: logarithms of the sums of exponentials, and the gradients of each row's sum and
    mean.
    """

    log_total: mtf.Tensor
    dtotal: mtf.Tensor
    dmean: mtf.Tensor

    def in_halves(self, count: int) -> tuple[Tensors, Tensors, Tensors]:
        return halves_of(self.log_total, count), halves_of(self.dtotal, count), halves_of(self.dmean, count)


@dataclasses.dataclass(frozen=True)
class _How:
    """Options, and the weights that dropout keeps: `kept` if they differ by query alone, `boxes` if by query and
    memory.
    """

    options: AttentionOptions
    kept: mtf.Tensor | None
    boxes: mtf.DropoutInBoxes | None
