"""Beam search and greedy decoding with the user's model: `mtf.beam_search.beam_search(logits_fn, ...)`.

A model is a function `logits_fn(step_num, ids, states) -> (logits, new_states)`. `step_num` is an int32 scalar that
counts from 0. `ids` are the sequences so far, with 0 from that position on. `states` is the list of tensors that the
function returned in the step before.

Beam search keeps the `beam` likeliest open sequences of each example and a pool of as many finished ones. With beam = 2
and a vocabulary of {end, a, b} one step looks like this, with log-likelihoods in brackets:

    open              a (-0.5)            b (-1.2)
    continued         a end, a a, a b     b end, b a, b b
    2 * beam best     a a (-1.0), a end (-1.7), b a (-1.8), b end (-2.2)
    open again        a a (-1.0), b a (-1.8)
    finished pool     a end, b end, each divided by the length penalty

At most `beam` of the best 2 * beam candidates end, because an open sequence has one continuation that ends. So `beam`
open sequences always remain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf import control_flow, ops
from meshtf import dimension as language
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._language import for_graphs
from meshtf.errors import GraphError, ShapeError, counted
from meshtf.graph.tensor import Tensor

EOS_ID = 1
INF = 1e7
"""The number that stands for infinity in the scores of sequences that do not exist."""

LogitsFn: TypeAlias = Callable[[Tensor, Tensor, list[Tensor]], tuple[Tensor, Sequence[Tensor]]]

_BEAM, _CANDIDATES, _POOL, _KEPT = "beam", "double_beam", "triple_beam", "kept_beam"


@for_graphs
def greedy_decode(
    logits_fn: LogitsFn,
    initial_ids: Tensor,
    temperature: float = 0.0,
    initial_states: Sequence[Tensor] | None = None,
    eos_id: int = EOS_ID,
    forced_ids: Tensor | None = None,
    use_tpu: bool = True,
) -> Tensor:
    """Adds the likeliest token, or a drawn one, at each position until each row has an `eos_id`.

    Args:
      logits_fn: the model. For ids [batch dimensions, length] it returns logits [batch dimensions, vocab].
      initial_ids: int32 [batch dimensions, length], zeros. The tokens found are added to them.
      temperature: 0 takes the likeliest, 1 draws by the probabilities.
      initial_states: the states for the first step.
      eos_id: the token that ends a row. Further tokens follow it until all rows have ended.
      forced_ids: int32, with the shape of `initial_ids`. Where it is not 0, its token is taken.
      use_tpu: ignored.

    Returns:
      int32 [batch dimensions, length].
    """
    length = initial_ids.shape.dims[-1]

    def goes_on(step: Tensor, ids: Tensor, *states: Tensor) -> Tensor:
        has_ended = ops.reduce_any(ops.equal(ids, eos_id), reduced_dim=length)
        return ops.logical_and(ops.less(step, length.size), ops.logical_not(ops.reduce_all(has_ended)))

    def add(step: Tensor, ids: Tensor, *states: Tensor) -> list[Tensor]:
        logits, states_after = logits_fn(step, ids, list(states))
        token = ops.sample_with_temperature(logits, logits.shape.dims[-1], temperature)
        if forced_ids is not None:
            forced = ops.gather(forced_ids, step, length)
            token = ops.where(ops.equal(forced, 0), token, forced)
        return [step + 1, _with_token(ids, step, token), *states_after]

    start = ops.constant(initial_ids.mesh, 0, dtype=tf.int32)
    given = [start, initial_ids, *(initial_states or [])]
    return control_flow.while_loop(goes_on, add, given, maximum_iterations=length.size)[1]


@for_graphs
def beam_search(  # noqa: PLR0913  # the original's parameters
    logits_fn: LogitsFn,
    initial_ids: Tensor,
    alpha: float,
    states: Sequence[Tensor] | None = None,
    eos_id: int = EOS_ID,
    stop_early: bool = True,
    decode_length: Tensor | int | None = None,
    use_tpu: bool = True,
    dtype: tf.DType = tf.float32,
    layout: object = None,
    mesh_shape: object = None,
    num_prefilter: int = 2,
) -> tuple[Tensor, Tensor]:
    """Searches for the sequences with the highest scores, with `beam` open sequences. Returns them best first.

    A score is the log-likelihood divided by ((5 + n) / 6) ** alpha for n tokens (Wu et al. 2016, "Google's Neural
    Machine Translation System"). If none of an example's sequences has ended, the open ones are returned. Their scores
    are log-likelihoods.

    Args:
      logits_fn: the model. For ids [batch, beam, length] it returns logits [batch, beam, vocab].
      initial_ids: int32 [batch, beam, length], zeros. The tokens found are added to them.
      alpha: the exponent of the length penalty. 0 means no penalty.
      states: the states of the first step. A state follows its beam if it has a dimension `beam`, or one with the
        batch's name and size batch * beam. Other states are the same for all.
      eos_id: the token that ends a sequence.
      stop_early: whether to end when no open sequence can beat the worst finished one.
      decode_length: the length of the longest sequence, an int32 scalar. `length` by default.
      use_tpu, layout, mesh_shape, num_prefilter: ignored. No candidate is left out here.
      dtype: the dtype of log-likelihoods and scores.

    Returns:
      Sequences, int32 [batch, beam, length], and scores [batch, beam].

    Raises:
      ShapeError: `initial_ids` has other than three dimensions, or the second is not called `beam`.
      GraphError: `logits_fn` returns more or fewer states than it was given.
    """
    if initial_ids.shape.ndims != 3 or initial_ids.shape.dims[1].name != _BEAM:
        raise ShapeError(
            f'initial_ids has shape [{initial_ids.shape}]; give it [batch, beam, length], where "beam" is called so'
        )
    longest = initial_ids.shape.dims[2].size if decode_length is None else decode_length
    return _BeamSearch(logits_fn, initial_ids, alpha, list(states or []), eos_id, stop_early, longest, dtype).run()


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    logits_fn: LogitsFn
    initial_ids: Tensor
    alpha: float
    states: list[Tensor]
    eos_id: int
    stop_early: bool
    longest: Tensor | int
    dtype: tf.DType

    def run(self) -> tuple[Tensor, Tensor]:
        ids, mesh = self.initial_ids, self.initial_ids.mesh
        rows = Shape([self._batch, self._beam])
        # All beams start equal. So only one of them is live at first. Otherwise the first step would find the same
        # token `beam` times.
        is_first = ops.equal(ops.range(mesh, self._beam, tf.int32), 0)
        nothing = ops.zeros(mesh, rows, self.dtype) - INF
        start = [
            ops.constant(mesh, 0, dtype=tf.int32),
            ids,
            ops.where(is_first, 0.0, nothing, output_shape=rows),
            ids,
            nothing,
            ops.zeros(mesh, rows, tf.int32),
            *self.states,
        ]
        most = self.longest if isinstance(self.longest, int) else ids.shape.dims[2].size
        done = control_flow.while_loop(self._goes_on, self._step, start, maximum_iterations=most)
        _, open_ids, log_likelihoods, found_ids, scores, is_finished = done[:6]
        # An example without a finished sequence returns its open ones.
        any_finished = ops.reduce_any(ops.not_equal(is_finished, 0), reduced_dim=self._beam)
        return (
            ops.where(any_finished, found_ids, open_ids, output_shape=ids.shape),
            ops.where(any_finished, scores, log_likelihoods, output_shape=rows),
        )

    @property
    def _batch(self) -> language.Dimension:
        return self.initial_ids.shape.dims[0]

    @property
    def _beam(self) -> language.Dimension:
        return self.initial_ids.shape.dims[1]

    def _goes_on(self, step: Tensor, *values: Tensor) -> Tensor:
        is_shorter = ops.less(step, self.longest)
        if not self.stop_early:
            return is_shorter
        _, log_likelihoods, _, scores, is_finished = values[:5]
        # Log-likelihoods only fall, and the longest sequence has the largest penalty. So this is the best score still
        # possible.
        best = ops.reduce_max(log_likelihoods, reduced_dim=self._beam) / self._penalty(self.longest)
        is_there = ops.not_equal(is_finished, 0)
        worst = ops.reduce_min(ops.where(is_there, scores, 0.0), reduced_dim=self._beam)
        worst = ops.where(ops.reduce_any(is_there, reduced_dim=self._beam), worst, -INF)
        return ops.logical_and(is_shorter, ops.reduce_any(ops.less_equal(worst, best)))

    def _step(self, step: Tensor, *values: Tensor) -> list[Tensor]:
        open_ids, log_likelihoods, found_ids, found_scores, is_finished = values[:5]
        logits, states = self.logits_fn(step, open_ids, list(values[5:]))
        if len(states) != len(self.states):
            raise GraphError(
                f"logits_fn was given {counted(len(self.states), 'state')}, and returned {len(states)}; return as many"
            )
        vocab = logits.shape.dims[-1]
        penalty = self._penalty(step + 1)
        totals = ops.log_softmax(ops.cast(logits, self.dtype), vocab) + log_likelihoods
        every = Dimension("beam_and_vocab", self._beam.size * vocab.size)
        flat = ops.replace_dimensions(
            ops.transpose(totals, [self._batch, self._beam, vocab]), [self._beam, vocab], [every]
        )
        # Each open sequence has one continuation that ends, so 2 * beam candidates leave at least beam open ones.
        candidates = Dimension(_CANDIDATES, min(2 * self._beam.size, every.size))
        likelihoods, places = ops.top_k(flat, every, candidates)
        sources, tokens = ops.floordiv(places, vocab.size), ops.mod(places, vocab.size)
        ids = _with_token(ops.gather(open_ids, sources, self._beam), step, tokens)
        ends = ops.equal(tokens, self.eos_id)
        # Ended candidates go to the pool and open ones stay, so each list hides the other's candidates.
        left, order = ops.top_k(ops.where(ends, -INF, likelihoods), candidates, self._beam)
        kept = ops.gather(sources, order, candidates)
        pools = [
            _pooled(found_scores, ops.where(ends, likelihoods / penalty, -INF)),
            _pooled(found_ids, ids),
            _pooled(is_finished, ops.cast(ends, tf.int32)),
        ]
        pool = pools[0].shape.get_dim_by_name(_POOL)
        scores, best = ops.top_k(pools[0], pool, self._beam)
        found_ids, is_finished = (ops.gather(x, best, pool) for x in pools[1:])
        open_ids = ops.gather(ids, order, candidates)
        after = [self._of_beams(after, before, kept) for after, before in zip(states, values[5:], strict=True)]
        return [step + 1, open_ids, left, found_ids, scores, is_finished, *after]

    def _penalty(self, count: Tensor | int) -> Tensor | float:
        """The length penalty of a sequence with `count` tokens."""
        if isinstance(count, int):
            return float(((5.0 + count) / 6.0) ** self.alpha)
        return ops.pow((ops.cast(count, self.dtype) + 5.0) / 6.0, self.alpha)

    def _of_beams(self, state: Tensor, before: Tensor, sources: Tensor) -> Tensor:
        """The state, reordered so that each beam has the entries of the beam that it came from.

        Its dimensions keep their order.
        """
        rows = Dimension(self._batch.name, self._batch.size * self._beam.size)
        if state.shape.has(self._beam):
            sources = ops.rename_dimension(sources, _BEAM, _KEPT)
            taken = ops.rename_dimension(ops.gather(state, sources, self._beam), _KEPT, _BEAM)
            return ops.transpose(taken, before.shape)
        if self._beam.size > 1 and rows in state.shape.dims:
            apart = ops.replace_dimensions(state, [rows], [self._batch, self._beam])
            taken = self._of_beams(apart, apart, sources)
            return ops.replace_dimensions(taken, [self._batch, self._beam], [rows])
        return state


def _with_token(ids: Tensor, step: Tensor, token: Tensor) -> Tensor:
    """Adds a token [..] at one position of [.., length]."""
    length = ids.shape.dims[-1]
    is_here = ops.equal(ops.range(ids.mesh, length, tf.int32), step)
    return ops.where(is_here, ids + token, ids, output_shape=ids.shape)


def _pooled(found: Tensor, new: Tensor) -> Tensor:
    """Joins [batch, beam, ..] and [batch, double_beam, ..] to [batch, triple_beam, ..]."""
    parts = [ops.rename_dimension(found, _BEAM, _POOL), ops.rename_dimension(new, _CANDIDATES, _POOL)]
    return ops.concat(parts, _POOL)
