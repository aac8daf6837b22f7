"""Chooses the next token of each row by the row's own settings, in one program.

The arithmetic is that of `meshtf.train.decoding.sampling` and `penalties`, with one number per row instead of one for
all rows. A setting that a row does not use has a neutral value: a temperature of 0, a penalty of 1.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_key, row_gumbel, with_count
from meshtf.serving.engine import GenerationRequest
from meshtf.serving.forms import num_words
from meshtf.train.decoding.sampling import REACHED

_WORDS = "words"
NUM_BANNED = 16
"""The number of stop tokens that can be banned in a row."""

_DTYPES = {
    "keys": tf.int64,
    "at": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "inverse_temperature": tf.float64,
    "nucleus": tf.float64,
    "least": tf.float32,
    "repetition": tf.float32,
    "presence": tf.float32,
    "frequency": tf.float32,
    "first_added": tf.int32,
}


def choice_specs(rows: int, length: int, vocab_size: int) -> dict[str, mtf.TensorSpec]:
    """The inputs of `chosen_tokens` by name, for this many rows of texts of this greatest length.

    `form` has a bit for each token, 32 to a word. All bits are set in rows where every token is allowed.
    """
    batch = ("batch", rows)
    specs = {name: mtf.TensorSpec([batch], dtype) for name, dtype in _DTYPES.items()}
    specs["banned"] = mtf.TensorSpec([batch, ("banned", NUM_BANNED)], tf.int32)
    specs["form"] = mtf.TensorSpec([batch, (_WORDS, num_words(vocab_size))], tf.int32)
    return specs | {"history": mtf.TensorSpec([batch, ("length", length)], tf.int32)}


@dataclasses.dataclass(frozen=True)
class RowChoice:
    """The settings of one request as numbers. `write` puts them into a row of a step's arrays."""

    values: dict[str, float | int]

    @classmethod
    def of(cls, request: GenerationRequest, vocab_size: int) -> RowChoice:
        is_drawn = request.temperature > 0
        is_cut = is_drawn and request.top_p < 1.0
        has_least = is_drawn and request.min_p > 0
        return cls(
            {
                "keys": prompt_key(request.seed),
                "temperature": request.temperature,
                "top_k": request.top_k if is_drawn and request.top_k else vocab_size,
                "inverse_temperature": 1.0 / request.temperature if is_drawn else 1.0,
                "nucleus": request.top_p * REACHED if is_cut else math.inf,
                "least": request.temperature * math.log(request.min_p) if has_least else -math.inf,
                "repetition": request.repetition_penalty,
                "presence": request.presence_penalty,
                "frequency": request.frequency_penalty,
            }
        )

    def write(self, arrays: dict[str, np.ndarray], row: int) -> None:
        for name, value in self.values.items():
            arrays[name][row] = value


def chosen_tokens(
    logits: mtf.Tensor, given: dict[str, mtf.Tensor], vocab: mtf.Dimension, num_likeliest: int
) -> dict[str, mtf.Tensor]:
    """Chooses the token of each row. Returns the tokens, the likeliest tokens, and log-likelihoods under the model.

    Args:
      logits: float32 [batch, vocab], -inf where there is no token.
      given: the inputs that `choice_specs` describes, by name.
      vocab: the dimension of the tokens.
      num_likeliest: the number of the most likely tokens to return.
    """
    wanted = _penalized(logits, given, vocab)
    is_formed = mtf.reduce_any(mtf.not_equal(given["form"], -1))
    (wanted,) = mtf.cond(is_formed, lambda: _formed(logits, wanted, given["form"], vocab), lambda: wanted)
    chosen = _chosen(wanted, given, vocab)
    normalizer = mtf.reduce_logsumexp(logits, vocab)
    values, ids = mtf.top_k(logits, vocab, mtf.Dimension("alternatives", num_likeliest))
    likelihoods = mtf.gather(logits, chosen, vocab) - normalizer
    return {"ids": chosen, "log_likelihoods": likelihoods, "likeliest_ids": ids, "likeliest": values - normalizer}


def _penalized(logits: mtf.Tensor, given: dict[str, mtf.Tensor], vocab: mtf.Dimension) -> mtf.Tensor:
    history, rate = given["history"], given["repetition"]
    lower = mtf.where(mtf.greater(logits, 0.0), logits / rate, logits * rate)
    logits = mtf.scatter_update(logits, history, mtf.gather(lower, history, vocab), vocab)
    places = mtf.range(logits.mesh, history.shape["length"])
    is_added = mtf.less_equal(given["first_added"], places, output_shape=history.shape)
    added = mtf.where(is_added, history, -1)
    counts = mtf.scatter_add(mtf.zeros_like(logits), added, mtf.ones(added.mesh, added.shape, logits.dtype), vocab)
    once = mtf.cast(mtf.greater(counts, 0.0), logits.dtype)
    logits = logits - (given["frequency"] * counts + given["presence"] * once)
    nothing = mtf.fill(logits.mesh, -math.inf, given["banned"].shape, logits.dtype)
    return mtf.scatter_update(logits, given["banned"], nothing, vocab)


def _formed(logits: mtf.Tensor, wanted: mtf.Tensor, form: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
    """The logits after penalties, with -inf for tokens that the form of a row does not allow.

    If bans leave a row no allowed token, it gets its logits before penalties for the allowed tokens.
    """
    places = mtf.range(form.mesh, vocab)
    words = mtf.gather(form, places // 32, _WORDS, output_shape=logits.shape)
    allowed = mtf.equal(mtf.bitwise_and(mtf.right_shift(words, places % 32, output_shape=logits.shape), 1), 1)
    possible = mtf.where(allowed, wanted, -math.inf, output_shape=logits.shape)
    has_any = mtf.reduce_any(mtf.greater(possible, -math.inf), reduced_dim=vocab)
    forced = mtf.where(allowed, logits, -math.inf, output_shape=logits.shape)
    return mtf.where(has_any, possible, forced, output_shape=logits.shape)


def _chosen(logits: mtf.Tensor, given: dict[str, mtf.Tensor], vocab: mtf.Dimension) -> mtf.Tensor:
    """The chosen tokens. A vocabulary is sorted only in steps that draw."""
    is_drawn = mtf.reduce_any(mtf.greater(given["temperature"], 0.0))
    (chosen,) = mtf.cond(is_drawn, lambda: _drawn(logits, given, vocab), lambda: mtf.argmax(logits, vocab))
    return chosen


def _drawn(logits: mtf.Tensor, given: dict[str, mtf.Tensor], vocab: mtf.Dimension) -> mtf.Tensor:
    candidates = mtf.Dimension("candidates", vocab.size)
    values, ids = mtf.top_k(logits, vocab, candidates)
    rank = mtf.range(logits.mesh, candidates)
    values = mtf.where(mtf.less(rank, given["top_k"], output_shape=values.shape), values, -math.inf)
    probabilities = mtf.softmax(mtf.cast(values, tf.float64) * given["inverse_temperature"], candidates)
    before = mtf.cumsum(probabilities, candidates, exclusive=True)
    values = mtf.where(mtf.less(before, given["nucleus"]), values, -math.inf)
    least = mtf.reduce_max(values, reduced_dim=candidates) + given["least"]
    values = mtf.where(mtf.less(values, least), -math.inf, values)
    noise = row_gumbel(with_count(given["keys"], given["at"]), vocab)
    own = mtf.gather(noise, ids, vocab, output_shape=values.shape)
    best = mtf.argmax(values + given["temperature"] * own, candidates)
    return mtf.gather(ids, best, candidates)
