"""Continues prompts under a constraint: the host says before each token which ones are allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.ops.random.row_keys import prompt_key, with_count
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.forms.constrained_texts import ConstrainedTexts
from meshtf.train.decoding.forms.constraints import TokenRules
from meshtf.train.decoding.generation import ALTERNATIVES
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.penalties import TokensSoFar
from meshtf.train.decoding.programs import GENERATE, TARGETS, Sizes, text_model, text_program, vocabulary_of
from meshtf.train.decoding.sequences import TOKEN_RESULTS
from meshtf.train.decoding.step_decoder import PromptStarter, token_logits
from meshtf.train.training import Training

_OWN_START = """\
Decoding.{kind} is for models with a token before every prompt, and {model} begins with the prompt's own first token."""


class ConstrainedProgram:
    """Continues prompts token by token. Between two tokens the state goes from one call to the next.

    It takes the arrays that `generation_program` takes, and returns the same results. Greedy decoding or sampling
    chooses each token among the allowed ones, after all penalties. If bans leave none of them, the penalties
    are ignored. Draws are those of `generate`: they depend on the seed, the number of the prompt and the position.
    Log-likelihoods are the model's own. A text that reaches its greatest length ends there, and may be only the
    beginning of a text of the form.

    Attributes:
      num_runs: the number of batches so far. The numbers of prompts continue from it.

    Args:
      training: the training of the model.
      mesh_impl: the mesh of the programs.
      sizes: the sizes of batches.
      decoding: the options, with a constraint.
      variables: the variables of the model.

    Raises:
      ConfigurationError: if the constraint is wrong, or does not work with an option or with the model.
    """

    def __init__(
        self,
        training: Training,
        mesh_impl: MeshImpl,
        sizes: Sizes,
        decoding: Decoding,
        variables: mtf.VariableStore,
    ) -> None:
        assert decoding.constraint is not None
        _check(training, decoding)
        self._vocabulary = vocabulary_of(training)
        self._rules = TokenRules(decoding.constraint, self._vocabulary)
        self._model, self._decoding, self._sizes = text_model(training), decoding, sizes
        self._stops, self.num_runs = decoding.stops(self._vocabulary), 0
        self._state: list[mtf.TensorSpec] = []
        self._vocab_size = 0  # both are known once the first program is built
        rows = mtf.TensorSpec(sizes.one_each, tf.int32)
        one = mtf.TensorSpec(mtf.Shape([]), tf.int32)
        features = sizes.features
        fill_inputs = features | {"lengths": rows}
        self._fill = text_program(self._filled, training, mesh_impl, fill_inputs, name="fill", variables=variables)
        allowed = mtf.TensorSpec([*sizes.one_each, ("vocab", self._vocab_size)], tf.bool)
        step_inputs = {"before": rows, "is_given": rows, "position": one, "allowed": allowed}
        step_inputs |= {"so_far": features[TARGETS], "lengths": rows, "keys": mtf.TensorSpec(sizes.one_each, tf.int64)}
        step_inputs |= {name: spec for name, spec in features.items() if name != TARGETS}
        step_inputs |= {f"state_{i}": spec for i, spec in enumerate(self._state)}
        self._step = text_program(self._stepped, training, mesh_impl, step_inputs, name=GENERATE, variables=variables)

    @property
    def name(self) -> str:
        """The name of the program that chooses tokens."""
        return self._step.name

    @property
    def variables(self) -> mtf.VariableStore:
        """The variables of both programs."""
        return self._step.variables

    @property
    def programs(self) -> Sequence[mtf.Function]:
        """The program that reads prompts, and the one that chooses tokens."""
        return [self._fill, self._step]

    def initialize(self) -> None:
        """Initializes the variables that have no values."""
        self._step.initialize()

    def __call__(self, **given: np.ndarray) -> dict[str, tf.Tensor]:
        ids, lengths, ends = (np.array(given.pop(name)) for name in (TARGETS, "lengths", "ends"))
        state = self._state_in(self._fill(**{TARGETS: ids, "lengths": lengths, **given}))
        texts, keys = ConstrainedTexts(self._rules, self._stops, ids, lengths, ends), self._keys(len(ids))
        for position in range(int(lengths.min()), ids.shape[1]):
            if texts.is_done.all():
                break
            out = self._step(
                before=ids[:, position - 1] if position else np.full(len(ids), self._start_id, np.int32),
                is_given=(position < lengths).astype(np.int32),
                position=np.int32(position),
                allowed=texts.allowed(position, self._vocab_size),
                so_far=ids,
                lengths=lengths,
                keys=keys,
                **given,
                **state,
            )
            state = self._state_in(out)
            texts.add(position, out["chosen"].numpy(), {x: out[x].numpy() for x in TOKEN_RESULTS if x in out})
        return {name: tf.constant(x) for name, x in texts.results().items()}

    def _keys(self, count: int) -> np.ndarray:
        """Returns the packed keys of the prompts of the next batch."""
        first = self.num_runs * count
        self.num_runs += 1
        return np.array([prompt_key(self._decoding.seed, first + row) for row in range(count)], np.int64)

    @property
    def _start_id(self) -> int:
        return self._model.start_id if isinstance(self._model, PromptStarter) else 0

    def _state_in(self, results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {f"state_{i}": results[f"state_{i}"] for i in range(len(self._state))}

    def _decoder_of(self, features: dict[str, mtf.Tensor]) -> Any:
        return self._model.incremental_decoder(features)

    def _filled(self, **given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        targets, lengths = given.pop(TARGETS), given.pop("lengths")
        decoder = self._decoder_of(given)
        self._vocab_size = decoder.vocab.size
        state = decoder.fill(targets, lengths, max_length=self._sizes.targets)
        self._state = [mtf.TensorSpec(x.shape, x.dtype) for x in state]
        return {f"state_{i}": x for i, x in enumerate(state)}

    def _stepped(self, **given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        before, is_given, position, allowed, so_far, lengths, keys = (
            given.pop(name) for name in ("before", "is_given", "position", "allowed", "so_far", "lengths", "keys")
        )
        state = [given.pop(f"state_{i}") for i in range(len(self._state))]
        decoder = self._decoder_of(given)
        writes_at = mtf.where(mtf.greater(is_given, 0), -1, position)
        logits, after = decoder.step(before, position, writes_at, state)
        logits = token_logits(logits, decoder)
        possible = self._possible(logits, allowed, TokensSoFar.of(so_far, position, lengths, self._start_id), decoder)
        chosen = self._decoding.sampling.choose(possible, decoder.vocab, with_count(keys, position))
        found = {"chosen": chosen, **self._told(logits, chosen, decoder.vocab)}
        return found | {f"state_{i}": x for i, x in enumerate(after)}

    def _possible(self, logits: mtf.Tensor, allowed: mtf.Tensor, so_far: TokensSoFar, decoder: Any) -> mtf.Tensor:
        """The logits after penalties, -inf for tokens that are not allowed."""
        penalties, vocab = self._decoding.penalties, decoder.vocab
        wanted = penalties.applied(logits, so_far, vocab, self._stops.ids)
        possible = mtf.where(allowed, wanted, -math.inf, output_shape=logits.shape)
        if not (penalties.no_repeat_ngram_size or penalties.min_new_tokens):
            return possible
        has_any = mtf.reduce_any(mtf.greater(possible, -math.inf), reduced_dim=vocab)
        forced = mtf.where(allowed, logits, -math.inf, output_shape=logits.shape)
        return mtf.where(has_any, possible, forced, output_shape=logits.shape)

    def _told(self, logits: mtf.Tensor, chosen: mtf.Tensor, vocab: mtf.Dimension) -> dict[str, mtf.Tensor]:
        """The model's own likelihoods at this position, by the names of `TOKEN_RESULTS`."""
        normalizer = mtf.reduce_logsumexp(logits, vocab)
        told = [mtf.gather(logits, chosen, vocab) - normalizer]
        if self._decoding.logprobs:
            count = min(self._decoding.logprobs, self._vocabulary.size)
            values, ids = mtf.top_k(logits, vocab, mtf.Dimension(ALTERNATIVES, count))
            told += [ids, values - normalizer]
        return dict(zip(TOKEN_RESULTS, told, strict=False))


def _check(training: Training, decoding: Decoding) -> None:
    """Raises ConfigurationError for an option, or a model, that does not work with a constraint."""
    assert decoding.constraint is not None
    kind = decoding.constraint.kind
    model = training.model
    if isinstance(model, PromptStarter) and not model.starts_prompts:
        raise ConfigurationError(_OWN_START.format(kind=kind, model=type(model).__name__))
