"""Draws several continuations of each prompt, and rates each with the same model, from one cache.

The prompts are read in one pass. All candidates reuse its keys and values. All ratings of a candidate reuse the
candidate's: only the tokens that request a rating are new.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.train.decoding.generation import SAMPLES, generate_samples
from meshtf.train.decoding.prompts import Prompts, repeated
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.sequences import Sequences
from meshtf.train.decoding.step_decoder import StepDecoder, token_logits
from meshtf.train.decoding.stops import Stops

ATTRIBUTES, ASKED = "attributes", "asked"


@dataclasses.dataclass(frozen=True)
class RatingForm:
    """The tokens by which a model rates a text.

    Attributes:
      asked: the tokens after a text that request each rating, equally many for each attribute: [attributes][asked].
      yes: the token of the rating 1.
      no: the token of the rating 0.
    """

    asked: Sequence[Sequence[int]]
    yes: int
    no: int

    @property
    def num_asked(self) -> int:
        return len(self.asked[0])

    @property
    def dims(self) -> list[mtf.Dimension]:
        return [mtf.Dimension(ATTRIBUTES, len(self.asked)), mtf.Dimension(ASKED, self.num_asked)]


@dataclasses.dataclass(frozen=True)
class RatedCandidates:
    """Continuations with their ratings.

    Attributes:
      ids: int32 [batch, samples, length]: the prompt, the continuation without the token that ended it, and zeros.
      lengths: int32 [batch, samples], without the zeros.
      log_likelihoods: float32 [batch, samples], with the token that ended it.
      ratings: float32 [batch, samples, attributes], the probability of the rating 1 against 0.
      drawn_steps: int32 scalar, how many positions were computed for each candidate while it was drawn.
      rated_steps: int32 scalar, how many positions were computed for each rating of a candidate.
    """

    ids: mtf.Tensor
    lengths: mtf.Tensor
    log_likelihoods: mtf.Tensor
    ratings: mtf.Tensor
    drawn_steps: mtf.Tensor
    rated_steps: mtf.Tensor

    def by_name(self) -> dict[str, mtf.Tensor]:
        """The tensors by name, as the results of a program."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def rated_candidates(
    decoder: StepDecoder, prompts: Prompts, sampling: Sampling, stop: int, *, num_samples: int, form: RatingForm
) -> RatedCandidates:
    """Draws `num_samples` continuations of each prompt up to a token, and rates each.

    Args:
      decoder: the decoder of the program.
      prompts: the prompts. After the end of each there must be room for `form.num_asked + 1` tokens.
      sampling: the way in which a token is chosen.
      stop: the token that ends a continuation.
      num_samples: the number of continuations.
      form: the tokens that request ratings.
    """
    samples = mtf.Dimension(SAMPLES, num_samples)
    found = generate_samples(decoder, prompts, sampling, Stops((stop,)), samples)
    drawn = _Drawn.of(found.sequences, prompts, stop)
    ratings, end = _Rating(decoder, prompts, drawn, form).run(found.state)
    return RatedCandidates(
        drawn.ids,
        drawn.lengths,
        found.sequences.log_likelihoods,
        ratings,
        found.position - mtf.reduce_min(prompts.lengths),
        end - mtf.reduce_min(drawn.lengths),
    )


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """Continuations [batch, samples, length] without the token that ended them, and their lengths."""

    ids: mtf.Tensor
    lengths: mtf.Tensor

    @classmethod
    def of(cls, found: Sequences, prompts: Prompts, stop: int) -> _Drawn:
        last = mtf.gather(found.ids, found.lengths - 1, prompts.length)
        is_stopped = mtf.logical_and(mtf.equal(last, stop), mtf.greater(found.lengths, prompts.lengths))
        lengths = found.lengths - mtf.to_int32(is_stopped)
        is_text = mtf.less(prompts.places(), lengths, output_shape=found.ids.shape)
        return cls(mtf.where(is_text, found.ids, 0), lengths)


@dataclasses.dataclass(frozen=True)
class _Rating:
    """The second loop, over rows [batch, samples, attributes]. All rows are at the same position.

    A row's own tokens are in the cache. After the last one come the tokens that request the rating, and the logits
    after these give the rating.
    """

    decoder: StepDecoder
    prompts: Prompts
    drawn: _Drawn
    form: RatingForm

    def run(self, state: list[mtf.Tensor]) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The ratings, and the position at which the loop ended."""
        attributes, _ = self.form.dims
        lengths, mesh = self.drawn.lengths, self.drawn.ids.mesh
        rows = lengths.shape + [attributes]
        like = self.decoder.start(mesh, rows, self.prompts.length.size, state[0].dtype)
        whole = [repeated(x, y.shape) for x, y in zip(state, like, strict=True)]
        last = mtf.reduce_max(lengths) + self.form.num_asked
        position, ratings, *_ = mtf.while_loop(
            lambda position, *_: mtf.less_equal(position, last),
            self._step,
            [mtf.reduce_min(lengths), mtf.zeros(mesh, rows), *whole],
            maximum_iterations=self.prompts.length.size,
            name="rate",
        )
        return ratings, position

    def _step(self, position: mtf.Tensor, ratings: mtf.Tensor, *state: mtf.Tensor) -> list[mtf.Tensor]:
        lengths = self.drawn.lengths
        writes_at = mtf.where(mtf.less(position, lengths), -1, position)
        before = self._token_at(position - 1)
        logits, new = self.decoder.step(before, position, mtf.broadcast(writes_at, ratings.shape), list(state))
        logits, vocab = token_logits(logits, self.decoder), self.decoder.vocab

        def logit(token: int) -> mtf.Tensor:
            return mtf.gather(logits, mtf.constant(logits.mesh, token, [], tf.int32), vocab)

        is_rating = mtf.equal(position, lengths + self.form.num_asked)
        rating = mtf.sigmoid(logit(self.form.yes) - logit(self.form.no))
        return [position + 1, mtf.where(is_rating, rating, ratings, output_shape=ratings.shape), *new]

    def _token_at(self, position: mtf.Tensor) -> mtf.Tensor:
        """The token of every row, int32 [batch, samples, attributes]."""
        attributes, asked = self.form.dims
        lengths, mesh = self.drawn.lengths, self.drawn.ids.mesh
        table = mtf.constant(mesh, np.array(self.form.asked, np.int32), [attributes, asked], tf.int32)
        place = mtf.clip_by_value(position - lengths, 0, asked.size - 1)
        own = self.prompts.at(position, self.drawn.ids)
        is_own = mtf.less(position, lengths)
        rows = lengths.shape + [attributes]
        return mtf.where(is_own, own, mtf.gather(table, place, asked), output_shape=rows)
