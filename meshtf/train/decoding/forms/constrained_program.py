"""Continues prompts under a constraint: the host says before each token which ones are allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.forms.constraints import TextRules, TokenRules
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.programs import GENERATE, TARGETS, Sizes, text_model, text_program, vocabulary_of
from meshtf.train.decoding.step_decoder import PromptStarter, token_logits
from meshtf.train.training import Training

_NO_ROOM = """\
Decoding.{kind} cannot be combined with {others}: the constraint alone says how a text goes on and ends."""

_OWN_START = """\
Decoding.{kind} is for models with a token before every prompt, and {model} begins with the prompt's own first token."""


class ConstrainedProgram:
    """Continues prompts token by token. Between two tokens the state goes from one call to the next.

    It takes the arrays that `generation_program` takes, and returns the same results. A token is the one that
    greedy decoding or sampling chooses among those that are allowed. Log-likelihoods are the model's own. A text
    that reaches its greatest length ends there, and may be only the beginning of a text of the form.

    Args:
      training: the training of the model.
      mesh_impl: the mesh of the programs.
      sizes: the sizes of batches.
      decoding: the options, with a constraint.
      variables: the variables of the model.

    Raises:
      ConfigurationError: if the constraint is wrong, or an option or the model does not go with it.
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
        self._state: list[mtf.TensorSpec] = []
        self._vocab_size = 0  # both are known once the first program is built
        rows = mtf.TensorSpec(sizes.one_each, tf.int32)
        one = mtf.TensorSpec(mtf.Shape([]), tf.int32)
        features = sizes.features
        fill_inputs = features | {"lengths": rows}
        self._fill = text_program(self._filled, training, mesh_impl, fill_inputs, name="fill", variables=variables)
        allowed = mtf.TensorSpec([*sizes.one_each, ("vocab", self._vocab_size)], tf.bool)
        step_inputs = {"before": rows, "is_given": rows, "position": one, "allowed": allowed}
        step_inputs |= {name: spec for name, spec in features.items() if name != TARGETS}
        step_inputs |= {f"state_{i}": spec for i, spec in enumerate(self._state)}
        options: dict[str, Any] = {"name": GENERATE, "variables": variables, "seed": decoding.seed}
        self._step = text_program(self._stepped, training, mesh_impl, step_inputs, **options)

    @property
    def name(self) -> str:
        """The name of the program that chooses tokens."""
        return self._step.name

    @property
    def variables(self) -> mtf.VariableStore:
        """The variables of both programs."""
        return self._step.variables

    def initialize(self) -> None:
        """Gives variables that have none their first values."""
        self._step.initialize()

    def __call__(self, **given: np.ndarray) -> dict[str, tf.Tensor]:
        ids, lengths, ends = (np.array(given.pop(name)) for name in (TARGETS, "lengths", "ends"))
        filled = self._fill(**{TARGETS: ids, "lengths": lengths, **given})
        state = self._state_in(filled)
        texts = [self._rules.begin() for _ in lengths]
        found, likelihoods = lengths.copy(), np.zeros(len(lengths))
        is_done = lengths >= ends
        for position in range(int(lengths.min()), ids.shape[1]):
            if is_done.all():
                break
            is_added = ~is_done & (position >= lengths)
            before = ids[:, position - 1] if position else np.full(len(ids), self._start_id, np.int32)
            out = self._step(
                before=before,
                is_given=(position < lengths).astype(np.int32),
                position=np.int32(position),
                allowed=self._allowed(texts, is_added),
                **given,
                **state,
            )
            state, chosen, likely = self._state_in(out), out["chosen"].numpy(), out["likelihood"].numpy()
            for row in np.flatnonzero(is_added):
                ids[row, position] = chosen[row]
                found[row], likelihoods[row] = position + 1, likelihoods[row] + likely[row]
                is_end = chosen[row] == self._vocabulary.end_id
                if not is_end:
                    texts[row].add(int(chosen[row]))
                is_done[row] = is_end or position + 1 >= ends[row]
        scores = likelihoods / np.maximum(found - lengths, 1)
        results = {"ids": ids, "lengths": found}
        numbers = {"log_likelihoods": likelihoods.astype(np.float32), "scores": scores.astype(np.float32)}
        return {name: tf.constant(x) for name, x in (results | numbers).items()}

    @property
    def _start_id(self) -> int:
        return self._model.start_id if isinstance(self._model, PromptStarter) else 0

    def _allowed(self, texts: list[TextRules], is_added: np.ndarray) -> np.ndarray:
        allowed = np.ones((len(texts), self._vocab_size), bool)
        for row in np.flatnonzero(is_added):
            mask = texts[row].allowed()
            allowed[row] = False
            allowed[row, : len(mask)] = mask
        return allowed

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
        before, is_given, position, allowed = (
            given.pop(name) for name in ("before", "is_given", "position", "allowed")
        )
        state = [given.pop(f"state_{i}") for i in range(len(self._state))]
        decoder = self._decoder_of(given)
        writes_at = mtf.where(mtf.greater(is_given, 0), -1, position)
        logits, after = decoder.step(before, position, writes_at, state)
        logits = token_logits(logits, decoder)
        possible = mtf.where(allowed, logits, -math.inf, output_shape=logits.shape)
        sampling = self._decoding.sampling
        # A step is a run of this program, so each token of a text has other keys.
        keys = prompt_keys(logits.mesh, self._sizes.one_each) if sampling.temperature else None
        chosen = sampling.choose(possible, decoder.vocab, keys)
        likelihood = mtf.gather(logits, chosen, decoder.vocab) - mtf.reduce_logsumexp(logits, decoder.vocab)
        found = {"chosen": chosen, "likelihood": likelihood}
        return found | {f"state_{i}": x for i, x in enumerate(after)}


def _check(training: Training, decoding: Decoding) -> None:
    """Raises ConfigurationError for an option, or a model, that does not go with a constraint."""
    assert decoding.constraint is not None
    kind = decoding.constraint.kind
    given = {
        "penalties or bans": decoding.penalties != Decoding().penalties,
        "logprobs": decoding.logprobs is not None,
        "stops": bool(decoding.stop_texts or decoding.stop_ids or decoding.end_ids),
    }
    if others := [name for name, is_given in given.items() if is_given]:
        raise ConfigurationError(_NO_ROOM.format(kind=kind, others=" and ".join(others)))
    model = training.model
    if isinstance(model, PromptStarter) and not model.starts_prompts:
        raise ConfigurationError(_OWN_START.format(kind=kind, model=type(model).__name__))
