"""Continues sequences token by token: greedily, by sampling, or by sampling several and ranking them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_keys, with_count
from meshtf.train.decoding.penalties import Penalties, TokensSoFar
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.sequences import Sequences, TokenLikelihoods
from meshtf.train.decoding.step_decoder import StepDecoder, token_logits
from meshtf.train.decoding.stops import Stops

SAMPLES, RANKS, ALTERNATIVES = "samples", "ranks", "alternatives"
NO_PENALTIES = Penalties()


def generate(
    decoder: StepDecoder,
    prompts: Prompts,
    sampling: Sampling,
    stops: Stops,
    *,
    penalties: Penalties = NO_PENALTIES,
    num_samples: int | None = None,
    num_likeliest: int | None = None,
) -> Sequences:
    """Continues prompts until every sequence has ended by `stops`, or reaches its greatest length.

    One pass reads the prompts, and the loop starts at the end of the shortest. Log-likelihoods are the model's own,
    even if `sampling` draws from other probabilities. Draws depend on the program's seed, the number of the prompt
    (counted over all runs of the program), the number of the sample, and the position. So a batch's size changes no
    draw.

    Args:
      decoder: the decoder of the program.
      prompts: the prompts.
      sampling: the way in which a token is chosen.
      stops: the ends of sequences.
      penalties: penalties for tokens that would repeat others.
      num_samples: how often each prompt is continued, if several times. The sequences are then ordered by their
        log-likelihood over the number of added tokens.
      num_likeliest: how many of the most likely tokens are returned at each position, with their likelihoods. 0 returns
        only the likelihood of the added token, and None nothing.
    """
    samples = None if num_samples is None else mtf.Dimension(SAMPLES, num_samples)
    found = _Generation(decoder, prompts, sampling, stops, penalties, samples, num_likeliest).run().sequences
    return found if samples is None else ranked(found, samples)


@dataclasses.dataclass(frozen=True)
class Generated:
    """Sequences, and the state after the loop.

    Attributes:
      sequences: the sequences over [batch, (samples)], in the order in which they were drawn.
      position: int32 scalar, the position at which the loop ended.
      state: the state of the decoder, if it was kept. Positions from a row's own length on must be overwritten.
    """

    sequences: Sequences
    position: mtf.Tensor
    state: list[mtf.Tensor]


def generate_samples(
    decoder: StepDecoder, prompts: Prompts, sampling: Sampling, stops: Stops, samples: mtf.Dimension
) -> Generated:
    """Continues each prompt over `samples`, as `generate` does, and keeps the state to continue from."""
    return _Generation(decoder, prompts, sampling, stops, NO_PENALTIES, samples, None, keeps_state=True).run()


def ranked(found: Sequences, samples: mtf.Dimension) -> Sequences:
    """Sorts sequences over `samples` by falling scores. Returns them over `ranks`."""
    ranks = mtf.Dimension(RANKS, samples.size)
    scores, order = mtf.top_k(found.scores, samples, ranks)

    def in_order(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.gather(x, order, samples)

    ids, lengths, log_likelihoods = map(in_order, (found.ids, found.lengths, found.log_likelihoods))
    tokens = None if found.tokens is None else found.tokens.map(in_order)
    return Sequences(ids, lengths, log_likelihoods, scores, tokens)


@dataclasses.dataclass(frozen=True)
class _Carried:
    """The state of the loop, over rows [batch, (samples)]. `before`: the tokens before `position`."""

    position: mtf.Tensor
    before: mtf.Tensor
    ids: mtf.Tensor
    lengths: mtf.Tensor
    log_likelihoods: mtf.Tensor
    is_done: mtf.Tensor

    @property
    def tensors(self) -> list[mtf.Tensor]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


_NUM_CARRIED = len(dataclasses.fields(_Carried))


@dataclasses.dataclass(frozen=True)
class _Generation:
    decoder: StepDecoder
    prompts: Prompts
    sampling: Sampling
    stops: Stops
    penalties: Penalties
    samples: mtf.Dimension | None
    num_likeliest: int | None
    keeps_state: bool = False

    def run(self) -> Generated:
        state = self.prompts.state(self.decoder, self.samples)
        start, keys = self._start(), self._keys()
        told = self._nothing_told(start.ids)
        done = mtf.while_loop(
            self._goes_on,
            lambda *values: self._step(keys, *values),
            [*start.tensors, *told, *state],
            num_loop_vars=None if self.keeps_state else _NUM_CARRIED + len(told),
            maximum_iterations=self.prompts.length.size,
            compiled=True,
            # Sequences that have ended stay as they are. The position and the state do not.
            may_overrun=not self.keeps_state,
            name="generate",
        )
        first_state = _NUM_CARRIED + len(told)
        end, tokens = _Carried(*done[:_NUM_CARRIED]), done[_NUM_CARRIED:first_state]
        added = mtf.cast(end.lengths - self.prompts.lengths, tf.float32)
        scores = end.log_likelihoods / mtf.maximum(added, 1.0)
        likelihoods = TokenLikelihoods(*tokens) if tokens else None
        sequences = Sequences(end.ids, end.lengths, end.log_likelihoods, scores, likelihoods)
        return Generated(sequences, end.position, list(done[first_state:]))

    def _start(self) -> _Carried:
        prompts = self.prompts
        rows = prompts.batch_dims + ([] if self.samples is None else [self.samples])
        ids = mtf.broadcast(prompts.only(), rows + [prompts.length])
        lengths = mtf.broadcast(prompts.lengths, rows)
        position = mtf.reduce_min(prompts.lengths)
        is_done = mtf.broadcast(mtf.greater_equal(prompts.lengths, prompts.ends), rows)
        before = prompts.at(position - 1, ids)
        return _Carried(position, before, ids, lengths, mtf.zeros(ids.mesh, rows), is_done)

    def _nothing_told(self, ids: mtf.Tensor) -> list[mtf.Tensor]:
        """The likelihoods before any token is added, in the order of `TokenLikelihoods`; empty if none are wanted."""
        if self.num_likeliest is None:
            return []
        chosen = mtf.zeros(ids.mesh, ids.shape)
        if not self.num_likeliest:
            return [chosen]
        several = ids.shape + [self._alternatives]
        return [chosen, mtf.zeros(ids.mesh, several, tf.int32), mtf.zeros(ids.mesh, several)]

    @property
    def _num_told(self) -> int:
        return 0 if self.num_likeliest is None else 3 if self.num_likeliest else 1

    @property
    def _alternatives(self) -> mtf.Dimension:
        assert self.num_likeliest is not None
        return mtf.Dimension(ALTERNATIVES, min(self.num_likeliest, self.decoder.output.vocab_size))

    def _goes_on(self, *values: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_any(mtf.logical_not(_Carried(*values[:_NUM_CARRIED]).is_done))

    def _keys(self) -> mtf.Tensor | None:
        """The packed keys of the rows, int64; None if nothing is drawn."""
        if not self.sampling.temperature:
            return None
        keys = prompt_keys(self.prompts.ids.mesh, self.prompts.batch_dims)
        return keys if self.samples is None else with_count(keys, mtf.range(keys.mesh, self.samples))

    def _step(self, keys: mtf.Tensor | None, *values: mtf.Tensor) -> list[mtf.Tensor]:
        now, prompts = _Carried(*values[:_NUM_CARRIED]), self.prompts
        first_state = _NUM_CARRIED + self._num_told
        told, state = values[_NUM_CARRIED:first_state], list(values[first_state:])
        position = now.position
        is_given = mtf.less(position, prompts.lengths)
        logits, state = self.decoder.step(now.before, position, mtf.where(is_given, -1, position), state)
        logits, vocab = token_logits(logits, self.decoder), self.decoder.vocab
        own_keys = None if keys is None else with_count(keys, position)
        chosen = self.sampling.choose(self._penalized(logits, now), vocab, own_keys)
        normalizer = mtf.reduce_logsumexp(logits, vocab)
        likelihood = mtf.gather(logits, chosen, vocab) - normalizer
        is_added = mtf.logical_and(mtf.logical_not(now.is_done), mtf.logical_not(is_given))
        token = mtf.where(is_added, chosen, prompts.at(position, now.ids))
        is_stop = self.stops.has_ended(token, now.ids, position, prompts)
        is_last = mtf.logical_or(is_stop, mtf.greater_equal(position + 1, prompts.ends))
        after = _Carried(
            position + 1,
            token,
            prompts.with_token(now.ids, position, token),
            mtf.where(is_added, position + 1, now.lengths),
            now.log_likelihoods + mtf.where(is_added, likelihood, 0.0),
            mtf.logical_or(now.is_done, mtf.logical_and(is_added, is_last)),
        )
        new = self._told(likelihood, logits, normalizer)
        is_here = mtf.logical_and(mtf.equal(prompts.places(), position), is_added)
        told_now = [mtf.where(is_here, x, old, output_shape=old.shape) for x, old in zip(new, told, strict=True)]
        return [*after.tensors, *told_now, *state]

    def _told(self, likelihood: mtf.Tensor, logits: mtf.Tensor, normalizer: mtf.Tensor) -> list[mtf.Tensor]:
        """The likelihoods at one position, in the order of `TokenLikelihoods`."""
        if self.num_likeliest is None:
            return []
        if not self.num_likeliest:
            return [likelihood]
        values, ids = mtf.top_k(logits, self.decoder.vocab, self._alternatives)
        return [likelihood, ids, values - normalizer]

    def _penalized(self, logits: mtf.Tensor, now: _Carried) -> mtf.Tensor:
        if self.penalties == NO_PENALTIES:
            return logits
        start = getattr(self.decoder, "start_id", None)
        so_far = TokensSoFar.of(now.ids, now.position, self.prompts.lengths, start)
        return self.penalties.applied(logits, so_far, self.decoder.vocab, self.stops.ids)
