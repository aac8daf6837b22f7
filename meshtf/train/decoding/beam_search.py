"""Beam search, with rules that score sequences and end a search.

A step continues all open sequences by one token, and sorts the results by the sums of their tokens' log-likelihoods. It
takes enough candidates to keep all beams filled even if some end. An example with two beams and the stop token $:

    open           a   -1.0    b   -1.5
    candidates     ab  -1.2    a$  -1.3    ba  -1.9    bb  -2.0
    open then      ab  -1.2    ba  -1.9
    finished       a$, with a score that the rules give it
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sized

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.train.decoding.beam_rules import BeamRules
from meshtf.train.decoding.generation import NO_PENALTIES, RANKS
from meshtf.train.decoding.penalties import Penalties, TokensSoFar
from meshtf.train.decoding.prompts import Prompts, is_one_of
from meshtf.train.decoding.sequences import Sequences
from meshtf.train.decoding.step_decoder import BeamDecoder, StepDecoder, token_logits

BEAM = "beam"
_CANDIDATES, _POOL = "candidates", "pool"


def beam_search(
    decoder: StepDecoder,
    prompts: Prompts,
    stop_ids: tuple[int, ...],
    *,
    beam_size: int,
    rules: BeamRules,
    penalties: Penalties = NO_PENALTIES,
) -> Sequences:
    """Searches for the `beam_size` sequences with the highest scores, and keeps as many open at a time.

    A sequence is finished by a token of `stop_ids`, which is part of it, or by its greatest length. Each step finds the
    best continuations of all open sequences, enough for `beam_size` that do not end with a stop token and stay open.
    The best `beam_size` finished ones are kept separately. The rules define the scores, and when the search ends.

    Args:
      decoder: the decoder of the program.
      prompts: prompts with one batch dimension. Each is continued as it is given, and only added tokens count.
      stop_ids: tokens that end a sequence.
      beam_size: size of the dimension `beam`, next to the batch.
      rules: `GnmtRules` or `TransformersRules`.
      penalties: only those that forbid tokens apply, `no_repeat_ngram_size` and `min_new_tokens`.

    Raises:
      UsageError: if `stop_ids` are no sequence, there is no beam, or the rules are none.
    """
    if not isinstance(stop_ids, Sized):
        raise UsageError(f"stop_ids must be a tuple of ids, such as (1,), and is {stop_ids!r}")
    if not hasattr(rules, "score"):
        raise UsageError(f"rules must be GnmtRules(..) or TransformersRules(..), and is {rules!r}")
    beam = mtf.Dimension(BEAM, beam_size)
    if not beam.size:
        raise UsageError("beam_size must be 1 or more, and is 0")
    if isinstance(decoder, BeamDecoder):
        decoder = decoder.with_beam(beam)
    return _BeamSearch(decoder, prompts, stop_ids, beam, rules, penalties).run()


@dataclasses.dataclass(frozen=True)
class _Carried:
    """The state of the loop.

    Attributes:
      position: int32 scalar, the position of the next token.
      before: int32 [batch, beam], the tokens before it.
      open_ids: [batch, beam, length], the ids of the open sequences.
      open_log_likelihoods: [batch, beam]; -inf if there are fewer sequences.
      ids: the ids of the finished `Sequences`, over `beam`, best first.
      lengths: their lengths.
      log_likelihoods: their log-likelihoods.
      scores: their scores.
      is_done: bool [batch].
    """

    position: mtf.Tensor
    before: mtf.Tensor
    open_ids: mtf.Tensor
    open_log_likelihoods: mtf.Tensor
    ids: mtf.Tensor
    lengths: mtf.Tensor
    log_likelihoods: mtf.Tensor
    scores: mtf.Tensor
    is_done: mtf.Tensor

    @property
    def tensors(self) -> list[mtf.Tensor]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


_NUM_CARRIED = len(dataclasses.fields(_Carried))


@dataclasses.dataclass(frozen=True)
class _Candidates:
    """The best continuations of the open sequences by one token, over [batch, candidates], best first.

    Attributes:
      sources: int32, the open sequence that each continues.
      tokens: int32, the token that each adds.
      log_likelihoods: float32, -inf if there are fewer.
    """

    sources: mtf.Tensor
    tokens: mtf.Tensor
    log_likelihoods: mtf.Tensor


@dataclasses.dataclass(frozen=True)
class _BeamSearch:
    decoder: StepDecoder
    prompts: Prompts
    stop_ids: tuple[int, ...]
    beam: mtf.Dimension
    rules: BeamRules
    penalties: Penalties

    def run(self) -> Sequences:
        state = self.prompts.state(self.decoder, self.beam)
        done = mtf.while_loop(
            self._goes_on,
            self._step,
            [*self._start().tensors, *state],
            num_loop_vars=_NUM_CARRIED,
            maximum_iterations=self.prompts.length.size,
            compiled=True,
            may_overrun=True,  # a search that has ended stays as it is
            name="beam_search",
        )
        end = _Carried(*done)
        found = [end.ids, end.lengths, end.log_likelihoods, end.scores]
        ids, lengths, log_likelihoods, scores = (mtf.rename_dimension(x, BEAM, RANKS) for x in found)
        return Sequences(ids, lengths, log_likelihoods, scores)

    def _start(self) -> _Carried:
        """Returns the first state. In it, all open sequences of a prompt are the same, so only the first counts."""
        prompts, beam = self.prompts, self.beam
        rows = prompts.batch_dims + [beam]
        ids, lengths = (
            mtf.broadcast(x, rows + d) for x, d in ((prompts.only(), [prompts.length]), (prompts.lengths, []))
        )
        position = mtf.reduce_min(prompts.lengths)
        is_done = mtf.greater_equal(prompts.lengths, prompts.ends)
        is_first = mtf.logical_and(mtf.equal(mtf.range(ids.mesh, beam), 0), mtf.logical_not(is_done))
        nothing = mtf.fill(ids.mesh, -math.inf, rows)
        return _Carried(
            position=position,
            before=prompts.at(position - 1, ids),
            open_ids=ids,
            open_log_likelihoods=mtf.where(is_first, 0.0, nothing, output_shape=rows),
            ids=ids,
            lengths=lengths,
            log_likelihoods=nothing,
            scores=nothing,
            is_done=is_done,
        )

    def _goes_on(self, *values: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_any(mtf.logical_not(_Carried(*values[:_NUM_CARRIED]).is_done))

    def _step(self, *values: mtf.Tensor) -> list[mtf.Tensor]:
        now, state, prompts = _Carried(*values[:_NUM_CARRIED]), list(values[_NUM_CARRIED:]), self.prompts
        is_given = mtf.less(now.position, prompts.lengths)
        writes_at = mtf.where(is_given, -1, now.position)
        logits, state = self.decoder.step(now.before, now.position, writes_at, state)
        found = self._candidates(token_logits(logits, self.decoder), now)
        is_last = mtf.greater_equal(now.position + 1, prompts.ends)
        is_end = mtf.logical_or(is_one_of(found.tokens, self.stop_ids), is_last)
        finished = self._finished(now, found, self._counts(now, is_end, is_given))
        sources, tokens, log_likelihoods = self._open(now, found, is_end, is_given)
        open_ids = prompts.with_token(self._reordered(now.open_ids, sources), now.position, tokens)
        after = _Carried(
            position=now.position + 1,
            before=tokens,
            open_ids=open_ids,
            open_log_likelihoods=log_likelihoods,
            ids=finished.ids,
            lengths=finished.lengths,
            log_likelihoods=finished.log_likelihoods,
            scores=finished.scores,
            is_done=mtf.logical_or(now.is_done, self._is_done(now.position + 1, log_likelihoods, finished.scores)),
        )
        reordered = [self._reordered(x, sources) if x.shape.has(self.beam) else x for x in state]
        return [*after.tensors, *reordered]

    def _candidates(self, logits: mtf.Tensor, now: _Carried) -> _Candidates:
        """Returns the best continuations by logits [batch, beam, vocab].

        They suffice to fill the beams even if each stop token ends every open sequence.
        """
        vocab, beam = self.decoder.vocab, self.beam
        wanted = beam.size * (1 + max(len(self.stop_ids), 1))
        tokens = mtf.Dimension("tokens", min(wanted, self.decoder.output.vocab_size))
        every = mtf.Dimension("every", beam.size * tokens.size)
        candidates = mtf.Dimension(_CANDIDATES, min(wanted, every.size))
        # One beam provides at most `wanted` of the best continuations, so each beam's vocabulary is cut before all are
        # compared.
        best, ids = mtf.top_k(self._allowed(logits, now), vocab, tokens)
        totals = best - mtf.reduce_logsumexp(logits, vocab) + now.open_log_likelihoods
        flat = mtf.replace_dimensions(mtf.transpose(totals, best.shape), [beam, tokens], [every])
        log_likelihoods, places = mtf.top_k(flat, every, candidates)
        flat_ids = mtf.replace_dimensions(ids, [beam, tokens], [every])
        return _Candidates(mtf.floordiv(places, tokens.size), mtf.gather(flat_ids, places, every), log_likelihoods)

    def _allowed(self, logits: mtf.Tensor, now: _Carried) -> mtf.Tensor:
        """The logits, -inf for tokens that the penalties forbid."""
        if self.penalties == NO_PENALTIES:
            return logits
        start = getattr(self.decoder, "start_id", None)
        so_far = TokensSoFar.of(now.open_ids, now.position, self.prompts.lengths, start)
        return self.penalties.without_banned(logits, so_far, self.decoder.vocab, self.stop_ids)

    def _finished(self, now: _Carried, found: _Candidates, is_end: mtf.Tensor) -> Sequences:
        """Returns the best among the earlier finished sequences and the candidates that finish now."""
        ids = mtf.gather(now.open_ids, found.sources, self.beam)
        ids = self.prompts.with_token(ids, now.position, found.tokens)
        scores = self.rules.score(found.log_likelihoods, self._added(now.position + 1))
        new = Sequences(
            ids,
            mtf.zeros_like(found.tokens) + (now.position + 1),
            found.log_likelihoods,
            mtf.where(is_end, scores, -math.inf),
        )
        old = Sequences(now.ids, now.lengths, now.log_likelihoods, now.scores)
        pools = {name: _pooled(x, new.by_name()[name]) for name, x in old.by_name().items()}
        pool = pools["scores"].shape.get_dim_by_name(_POOL)
        scores, order = mtf.top_k(pools.pop("scores"), pool, self.beam)
        ids, lengths, log_likelihoods = (mtf.gather(x, order, pool) for x in pools.values())
        return Sequences(ids, lengths, log_likelihoods, scores)

    def _open(
        self, now: _Carried, found: _Candidates, is_end: mtf.Tensor, is_given: mtf.Tensor
    ) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
        """Returns the sources, tokens and log-likelihoods of the open sequences, [batch, beam]. Within a prompt,
        the token is the given one.
        """
        candidates = found.tokens.shape.get_dim_by_name(_CANDIDATES)
        left = mtf.where(is_end, -math.inf, found.log_likelihoods)
        log_likelihoods, order = mtf.top_k(left, candidates, self.beam)
        sources, tokens = (mtf.gather(x, order, candidates) for x in (found.sources, found.tokens))
        given = self.prompts.at(now.position, now.open_ids)
        itself = mtf.range(given.mesh, self.beam)
        return (
            mtf.where(is_given, itself, sources, output_shape=sources.shape),
            mtf.where(is_given, given, tokens, output_shape=tokens.shape),
            mtf.where(is_given, now.open_log_likelihoods, log_likelihoods, output_shape=tokens.shape),
        )

    def _counts(self, now: _Carried, is_end: mtf.Tensor, is_given: mtf.Tensor) -> mtf.Tensor:
        """Which candidates [batch, candidates] finish a sequence: after the prompt, if the search has not ended."""
        counts = mtf.logical_and(is_end, mtf.logical_not(mtf.logical_or(is_given, now.is_done)))
        if not self.rules.counts_leading_ends:
            return counts
        candidates = is_end.shape.get_dim_by_name(_CANDIDATES)
        return mtf.logical_and(counts, mtf.less(mtf.range(is_end.mesh, candidates), self.beam.size))

    def _is_done(self, lengths: mtf.Tensor, open_ones: mtf.Tensor, finished: mtf.Tensor) -> mtf.Tensor:
        """Whether searches [batch] end, from the open log-likelihoods and the finished scores at these lengths.

        If fewer than `beam_size` are finished, the worst score is -inf. If all have their greatest length, none is
        open.
        """
        best = mtf.reduce_max(open_ones, reduced_dim=self.beam)
        worst = mtf.reduce_min(finished, reduced_dim=self.beam)
        hoped_for = self.rules.hoped_for(best, self._added(lengths), self._added(self.prompts.ends))
        is_done = mtf.greater_equal(worst, hoped_for)
        return mtf.logical_or(is_done, mtf.greater(worst, -math.inf)) if self.rules.ends_when_full else is_done

    def _added(self, lengths: mtf.Tensor) -> mtf.Tensor:
        """The numbers of added tokens in sequences of these lengths, at least 1; float32 [batch]."""
        return mtf.maximum(mtf.cast(lengths - self.prompts.lengths, tf.float32), 1.0)

    def _reordered(self, x: mtf.Tensor, sources: mtf.Tensor) -> mtf.Tensor:
        """Returns x [.., beam, ..] in which each beam has the row of its source."""
        sources = mtf.rename_dimension(sources, BEAM, "kept")
        renamed = mtf.Shape([("kept", d.size) if d.name == BEAM else d for d in x.shape])
        return mtf.rename_dimension(mtf.gather(x, sources, self.beam, output_shape=renamed), "kept", BEAM)


def _pooled(old: mtf.Tensor, new: mtf.Tensor) -> mtf.Tensor:
    """Concatenates [batch, beam, ..] and [batch, candidates, ..] to [batch, pool, ..]."""
    return mtf.concat([mtf.rename_dimension(old, BEAM, _POOL), mtf.rename_dimension(new, _CANDIDATES, _POOL)], _POOL)
