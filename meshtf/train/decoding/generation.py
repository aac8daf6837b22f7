"""Continues sequences token by token: greedily, by sampling, or by sampling several and ranking them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.train.decoding.prompts import Prompts, is_one_of
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.sequences import Sequences
from meshtf.train.decoding.step_decoder import StepDecoder, token_logits

SAMPLES, RANKS = "samples", "ranks"


def generate(
    decoder: StepDecoder,
    prompts: Prompts,
    sampling: Sampling,
    stop_ids: tuple[int, ...],
    *,
    num_samples: int | None = None,
) -> Sequences:
    """Continues prompts until every sequence has a token of `stop_ids`, or reaches its greatest length.

    One pass reads the prompts, and the loop starts behind the shortest of them. With `num_samples`, each prompt is
    continued that many times, and the sequences are ordered by their log-likelihood over the number of added tokens.
    """
    samples = None if num_samples is None else mtf.Dimension(SAMPLES, num_samples)
    found = _Generation(decoder, prompts, sampling, stop_ids, samples).run()
    return found if samples is None else ranked(found, samples)


def ranked(found: Sequences, samples: mtf.Dimension) -> Sequences:
    """Returns sequences over `samples` in falling order of their scores, over `ranks`."""
    ranks = mtf.Dimension(RANKS, samples.size)
    scores, order = mtf.top_k(found.scores, samples, ranks)
    ids, lengths, log_likelihoods = (
        mtf.gather(x, order, samples) for x in (found.ids, found.lengths, found.log_likelihoods)
    )
    return Sequences(ids, lengths, log_likelihoods, scores)


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
    stop_ids: tuple[int, ...]
    samples: mtf.Dimension | None

    def run(self) -> Sequences:
        state = self.prompts.state(self.decoder, self.samples)
        done = mtf.while_loop(
            self._goes_on,
            self._step,
            [*self._start().tensors, *state],
            num_loop_vars=_NUM_CARRIED,
            maximum_iterations=self.prompts.length.size,
            compiled=True,
            name="generate",
        )
        end = _Carried(*done)
        added = mtf.cast(end.lengths - self.prompts.lengths, tf.float32)
        scores = end.log_likelihoods / mtf.maximum(added, 1.0)
        return Sequences(end.ids, end.lengths, end.log_likelihoods, scores)

    def _start(self) -> _Carried:
        prompts = self.prompts
        rows = prompts.batch_dims + ([] if self.samples is None else [self.samples])
        ids = mtf.broadcast(prompts.only(), rows + [prompts.length])
        lengths = mtf.broadcast(prompts.lengths, rows)
        position = mtf.reduce_min(prompts.lengths)
        is_done = mtf.broadcast(mtf.greater_equal(prompts.lengths, prompts.ends), rows)
        before = prompts.at(position - 1, ids)
        return _Carried(position, before, ids, lengths, mtf.zeros(ids.mesh, rows), is_done)

    def _goes_on(self, *values: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_any(mtf.logical_not(_Carried(*values[:_NUM_CARRIED]).is_done))

    def _step(self, *values: mtf.Tensor) -> list[mtf.Tensor]:
        now, state, prompts = _Carried(*values[:_NUM_CARRIED]), list(values[_NUM_CARRIED:]), self.prompts
        position = now.position
        is_given = mtf.less(position, prompts.lengths)
        logits, state = self.decoder.step(now.before, position, mtf.where(is_given, -1, position), state)
        logits, vocab = token_logits(logits, self.decoder), self.decoder.vocab
        chosen = self.sampling.choose(self.sampling.penalized(logits, self._seen(now), vocab), vocab)
        likelihood = mtf.gather(logits, chosen, vocab) - mtf.reduce_logsumexp(logits, vocab)
        is_added = mtf.logical_and(mtf.logical_not(now.is_done), mtf.logical_not(is_given))
        token = mtf.where(is_added, chosen, prompts.at(position, now.ids))
        is_last = mtf.logical_or(is_one_of(token, self.stop_ids), mtf.greater_equal(position + 1, prompts.ends))
        after = _Carried(
            position + 1,
            token,
            prompts.with_token(now.ids, position, token),
            mtf.where(is_added, position + 1, now.lengths),
            now.log_likelihoods + mtf.where(is_added, likelihood, 0.0),
            mtf.logical_or(now.is_done, mtf.logical_and(is_added, is_last)),
        )
        return [*after.tensors, *state]

    def _seen(self, now: _Carried) -> list[mtf.Tensor]:
        """The tokens before each sequence's position: the one that stands before all texts, and those of the text."""
        seen = [mtf.where(mtf.less(self.prompts.places(), now.position), now.ids, -1, output_shape=now.ids.shape)]
        start = getattr(self.decoder, "start_id", None)
        if start is None:
            return seen
        start = mtf.constant(now.ids.mesh, start, dtype=tf.int32) if isinstance(start, int) else start
        return [*seen, mtf.broadcast(start, now.before.shape)]
