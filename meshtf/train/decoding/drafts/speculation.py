"""Continues prompts by several tokens in each step of a model: a draft proposes them, and the model checks them."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.train.decoding.drafts.acceptance import CHECKED, DRAFTED, DraftRule
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.sequences import Sequences, TokenLikelihoods
from meshtf.train.decoding.step_decoder import StepDecoder, token_logits
from meshtf.train.decoding.stops import Stops

_READ = "read"


@dataclasses.dataclass(frozen=True)
class Speculated:
    """Sequences, and how much the draft helped.

    Attributes:
      sequences: the sequences over [batch].
      steps: int32 [batch], the number of the model's steps until each sequence had ended.
      accepted: int32 [batch], the number of added tokens that were drafted.
    """

    sequences: Sequences
    steps: mtf.Tensor
    accepted: mtf.Tensor

    def by_name(self) -> dict[str, mtf.Tensor]:
        """Returns the tensors by name, as the result of a program."""
        return {**self.sequences.by_name(), "steps": self.steps, "accepted": self.accepted}


def speculate(
    decoder: StepDecoder,
    draft: StepDecoder,
    prompts: Prompts,
    sampling: Sampling,
    stops: Stops,
    *,
    num_drafted: int,
) -> Speculated:
    """Continues prompts until every sequence has ended by `stops`, or reaches its greatest length.

    In each step the draft proposes the next `num_drafted` tokens of every row, one after the other. The model reads
    them all at once. It accepts some of them, by `DraftRule`, and adds one of its own. So rows advance by different
    numbers of tokens, and each has its own position. The text has the distribution of `generate`'s, and is the same
    text if nothing is drawn.

    Args:
      decoder: the decoder of the model, which reads several tokens in a step (see `SeveralTokensDecoder`).
      draft: the decoder of the draft, which also reads several tokens in a step.
      prompts: the prompts.
      sampling: the way in which a token is chosen.
      stops: the ends of sequences.
      num_drafted: how many tokens are drafted in each step.
    """
    return _Speculation(decoder, draft, prompts, sampling, stops, num_drafted).run()


@dataclasses.dataclass(frozen=True)
class _Carried:
    """The state of the loop, over rows [batch]. `position` is that of the next token of each row.

    `log_likelihoods`, [batch, length], are those of each added token, and 0 elsewhere.
    """

    position: mtf.Tensor
    ids: mtf.Tensor
    is_done: mtf.Tensor
    log_likelihoods: mtf.Tensor
    steps: mtf.Tensor
    accepted: mtf.Tensor

    @property
    def tensors(self) -> list[mtf.Tensor]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]


_NUM_CARRIED = len(dataclasses.fields(_Carried))


@dataclasses.dataclass(frozen=True)
class _Speculation:
    decoder: StepDecoder
    draft: StepDecoder
    prompts: Prompts
    sampling: Sampling
    stops: Stops
    num_drafted: int

    def run(self) -> Speculated:
        state, draft_state = self.prompts.state(self.decoder), self.prompts.state(self.draft)
        rule = self._rule()

        def step(*values: mtf.Tensor) -> list[mtf.Tensor]:
            now, states = _Carried(*values[:_NUM_CARRIED]), list(values[_NUM_CARRIED:])
            drafted, draft_logits, drafts_after = self._drafted(rule, now, states[len(state) :])
            logits, after = self._read(self.decoder, self._tokens_to_check(now, drafted), now, states[: len(state)])
            count, tokens = rule.checked(logits, draft_logits, drafted, now.position)
            return [*self._with_tokens(now, tokens, count, logits).tensors, *after, *drafts_after]

        done = mtf.while_loop(
            lambda *values: mtf.reduce_any(mtf.logical_not(_Carried(*values[:_NUM_CARRIED]).is_done)),
            step,
            [*self._start().tensors, *state, *draft_state],
            num_loop_vars=_NUM_CARRIED,
            maximum_iterations=self.prompts.length.size,
            compiled=True,
            name="speculate",
        )
        return self._found(_Carried(*done[:_NUM_CARRIED]))

    def _rule(self) -> DraftRule:
        prompts = self.prompts
        keys = prompt_keys(prompts.ids.mesh, prompts.batch_dims) if self.sampling.temperature else None
        return DraftRule(self.sampling, keys, self.decoder.vocab)

    def _start(self) -> _Carried:
        prompts = self.prompts
        mesh, rows, ids = prompts.ids.mesh, prompts.batch_dims, prompts.only()
        none, is_done = mtf.zeros(mesh, rows, tf.int32), mtf.greater_equal(prompts.lengths, prompts.ends)
        return _Carried(prompts.lengths, ids, is_done, mtf.zeros(mesh, ids.shape), none, none)

    def _found(self, end: _Carried) -> Speculated:
        added = mtf.cast(end.position - self.prompts.lengths, tf.float32)
        total = mtf.reduce_sum(end.log_likelihoods, reduced_dim=self.prompts.length)
        scores, tokens = total / mtf.maximum(added, 1.0), TokenLikelihoods(end.log_likelihoods)
        sequences = Sequences(end.ids, end.position, total, scores, tokens)
        return Speculated(sequences, end.steps, end.accepted)

    def _drafted(
        self, rule: DraftRule, now: _Carried, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, mtf.Tensor, list[mtf.Tensor]]:
        """The drafted tokens [batch, drafted], the logits [batch, drafted, vocab] they come from, and the new state."""
        tokens: list[mtf.Tensor] = []
        logits: list[mtf.Tensor] = []
        for number in range(self.num_drafted):
            position = now.position + number
            if number:
                found, state = self._read(self.draft, tokens[-1], now, state, number)
            else:
                # If all tokens were accepted, the draft has not read the last of them. It reads the last two again.
                last = mtf.stack([self._token_before(now, 1), self._token_before(now, 0)], _READ, axis=-1)
                found, state = self._read(self.draft, last, now, state, -1)
                found = mtf.gather(found, 1, _READ)
            logits.append(found)
            tokens.append(rule.drafted(found, position))
        return mtf.stack(tokens, DRAFTED, axis=-1), mtf.stack(logits, DRAFTED, axis=-2), state

    def _tokens_to_check(self, now: _Carried, drafted: mtf.Tensor) -> mtf.Tensor:
        """The tokens before the positions that are checked, int32 [batch, checked]."""
        first = mtf.stack([self._token_before(now, 0)], CHECKED, axis=-1)
        return mtf.concat([first, drafted.rename({DRAFTED: CHECKED})], CHECKED)

    def _token_before(self, now: _Carried, back: int) -> mtf.Tensor:
        """The last token before the next one, or the token `back` positions before that."""
        return self.prompts.at(now.position - (1 + back), now.ids)

    def _read(
        self, decoder: StepDecoder, tokens: mtf.Tensor, now: _Carried, state: list[mtf.Tensor], first: int = 0
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Logits [.., vocab] after tokens [batch, (several)]. The first token is `first` after the next position."""
        position = now.position + first
        for dim in tokens.shape - now.position.shape:
            position = position + mtf.range(position.mesh, dim)
        length = self.prompts.length.size
        inside = mtf.clip_by_value(position, 0, length - 1)
        logits, state = decoder.step(tokens, inside, mtf.where(mtf.equal(position, inside), position, -1), state)
        return _over(token_logits(logits, decoder), decoder.vocab, self.decoder.vocab), state

    def _with_tokens(self, now: _Carried, tokens: mtf.Tensor, count: mtf.Tensor, logits: mtf.Tensor) -> _Carried:
        """The rows after a step, with the first `count` + 1 of `tokens` [batch, checked].

        A row takes no tokens after its end.
        """
        prompts, vocab = self.prompts, self.decoder.vocab
        offsets = mtf.range(tokens.mesh, tokens.shape[CHECKED])
        places = now.position + offsets
        is_open = mtf.logical_and(mtf.logical_not(now.is_done), mtf.less_equal(offsets, count))
        is_stop = self.stops.has_ended(tokens, self._written(now.ids, places, is_open, tokens), places, prompts)
        is_end = mtf.logical_or(is_stop, mtf.greater_equal(places + 1, prompts.ends))
        is_end = mtf.transpose(mtf.logical_and(is_end, is_open), tokens.shape)
        ends_before = mtf.cumsum(mtf.to_int32(is_end), CHECKED, exclusive=True)
        is_added = mtf.logical_and(is_open, mtf.equal(ends_before, 0))
        added = mtf.reduce_sum(mtf.to_int32(is_added), reduced_dim=CHECKED)
        likelihood = mtf.gather(logits, tokens, vocab) - mtf.reduce_logsumexp(logits, vocab)
        return _Carried(
            now.position + added,
            self._written(now.ids, places, is_added, tokens),
            mtf.logical_or(now.is_done, mtf.reduce_any(is_end, reduced_dim=CHECKED)),
            self._written(now.log_likelihoods, places, is_added, likelihood),
            now.steps + mtf.to_int32(mtf.logical_not(now.is_done)),
            now.accepted + mtf.minimum(count, added),
        )

    def _written(self, old: mtf.Tensor, places: mtf.Tensor, where: mtf.Tensor, new: mtf.Tensor) -> mtf.Tensor:
        """Values [batch, length], with new ones [batch, checked] at their places."""
        return mtf.scatter_update(old, mtf.where(where, places, -1), new, self.prompts.length)


def _over(logits: mtf.Tensor, own: mtf.Dimension, vocab: mtf.Dimension) -> mtf.Tensor:
    """Logits over a model's own padded vocabulary as logits over another one's. Only padding differs."""
    if own.size > vocab.size:
        return mtf.slice(logits, 0, vocab.size, own)
    if own.size < vocab.size:
        longer = mtf.pad(logits, [0, vocab.size - own.size], own.name)
        is_own = mtf.less(mtf.range(logits.mesh, vocab), own.size)
        return mtf.where(is_own, longer, -math.inf, output_shape=longer.shape)
    return logits
