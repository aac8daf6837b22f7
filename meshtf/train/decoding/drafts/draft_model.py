"""A model that drafts tokens for another one, in the same program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.options import GREEDY, SAMPLE, Decoding
from meshtf.train.decoding.programs import greatest_sizes, text_model, vocabulary_of
from meshtf.train.decoding.step_decoder import (
    OutputVocabulary,
    PromptStarter,
    SeveralTokensDecoder,
    StepDecoder,
    TextModel,
)
from meshtf.train.training import Training

SCOPE = "draft"
"""The scope of a draft's variables."""

_METHOD = """\
--draft is for --method=greedy and --method=sample, and --method is {method}."""

_OPTIONS = """\
--draft cannot be combined with {options}: the model checks several tokens at once, and these depend on the tokens \
before each."""

_VOCABULARY = """\
--draft needs a model with the same vocabulary. The model has {own}, and the draft {other}; they encode some
texts differently."""

_LENGTH = """\
the draft was trained on sequences of {counted}, and the model on ones of {length:,} (TextTask.length). Give
--max_length={most}, or another draft."""

_NO_STEPS = """\
--draft is for models that read several tokens in one step, as TransformerLM and EncoderDecoder do. The decoder of
{model}, {decoder}, does not."""

_ENCODER = """\
--draft needs a model that reads the same texts: {model} and {draft} do not have the same inputs."""

_START = """\
--draft needs a model that begins texts in the same way: TransformerLM.starts_prompts is {own} for the model, and
{other} for the draft."""


@dataclasses.dataclass(frozen=True)
class Draft:
    """A model that drafts tokens, and how many it drafts at a time.

    Attributes:
      training: the training of the draft. Its model is in the scope `draft`.
      num_tokens: how many tokens are drafted before each step of the model.
    """

    training: Training
    num_tokens: int

    @classmethod
    def of(cls, training: Training, num_tokens: int) -> Draft:
        """The draft of a training as it was read.

        Raises:
          ConfigurationError: if the model is not one of text, or the number is not positive.
        """
        greatest_sizes(training)
        if num_tokens < 1:
            raise ConfigurationError(f"--draft_tokens must be 1 or more, and is {num_tokens}")
        return cls(dataclasses.replace(training, model=ScopedModel(text_model(training), SCOPE)), num_tokens)

    def check_goes_with(self, training: Training, decoding: Decoding) -> None:
        """Raises ConfigurationError for a model or options with which the draft cannot be used."""
        _check_options(decoding)
        own, other = vocabulary_of(training), vocabulary_of(self.training)
        if own.fingerprint != other.fingerprint:
            raise ConfigurationError(_VOCABULARY.format(own=_described(own), other=_described(other)))
        sizes, drafts = greatest_sizes(training), greatest_sizes(self.training)
        model, draft = text_model(training), self._model.model
        if (sizes.inputs is None) != (drafts.inputs is None):
            raise ConfigurationError(_ENCODER.format(model=type(model).__name__, draft=type(draft).__name__))
        length = min(sizes.targets, decoding.max_length or sizes.targets)
        if drafts.targets < length:
            most = counted(drafts.targets, "token")
            raise ConfigurationError(_LENGTH.format(counted=most, length=sizes.targets, most=drafts.targets))
        starts = [not isinstance(each, PromptStarter) or each.starts_prompts for each in (model, draft)]
        if starts[0] != starts[1]:
            raise ConfigurationError(_START.format(own=starts[0], other=starts[1]))

    def decoder(self, features: Mapping[str, mtf.Tensor]) -> StepDecoder:
        """The decoder of the draft in the program that is being built."""
        return decoder_within(self._model, features, self.training.kept_weights)

    @property
    def _model(self) -> ScopedModel:
        assert isinstance(self.training.model, ScopedModel)
        return self.training.model


@dataclasses.dataclass(frozen=True)
class ScopedModel:
    """A `TextModel` whose variables are in a scope."""

    model: TextModel
    scope: str

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> Mapping[str, Any]:
        with mtf.variable_scope(self.scope):
            return self.model.metrics(features, is_training)

    def incremental_decoder(self, features: Mapping[str, mtf.Tensor]) -> StepDecoder:
        return decoder_within(self.model, features, lambda: mtf.variable_scope(self.scope))


@dataclasses.dataclass(frozen=True)
class DecoderWithin:
    """A decoder, all of whose operations are made within a context."""

    decoder: StepDecoder
    context: Callable[[], AbstractContextManager[Any]]

    @property
    def vocab(self) -> mtf.Dimension:
        return self.decoder.vocab

    @property
    def output(self) -> OutputVocabulary:
        return self.decoder.output

    def start(self, mesh: mtf.Mesh, batch_dims: mtf.Shape, max_length: int, dtype: tf.DType) -> list[mtf.Tensor]:
        with self.context():
            return self.decoder.start(mesh, batch_dims, max_length, dtype)

    def fill(self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None) -> list[mtf.Tensor]:
        with self.context():
            return self.decoder.fill(prompts, prompt_lengths, max_length)

    def step(
        self, tokens: mtf.Tensor, position: mtf.Tensor, writes_at: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        with self.context():
            return self.decoder.step(tokens, position, writes_at, state)


def decoder_within(
    model: TextModel, features: Mapping[str, mtf.Tensor], context: Callable[[], AbstractContextManager[Any]]
) -> DecoderWithin:
    """The decoder of a model. It is also built within the context.

    Raises:
      ConfigurationError: if it does not read several tokens in one step.
    """
    with context():
        decoder = model.incremental_decoder(features)
    inner = decoder.decoder if isinstance(decoder, DecoderWithin) else decoder
    if not isinstance(inner, SeveralTokensDecoder) or not inner.reads_several_tokens:
        raise ConfigurationError(_NO_STEPS.format(model=type(model).__name__, decoder=type(inner).__name__))
    return DecoderWithin(decoder, context)


def _check_options(decoding: Decoding) -> None:
    if decoding.method not in (GREEDY, SAMPLE):
        raise ConfigurationError(_METHOD.format(method=decoding.method))
    given = {
        "penalties or bans": decoding.penalties != Decoding().penalties,
        "a form of the text (json_schema, grammar, regex)": decoding.constraint is not None,
        "logprobs above 0": bool(decoding.logprobs),
    }
    if options := [name for name, is_given in given.items() if is_given]:
        raise ConfigurationError(_OPTIONS.format(options=" and ".join(options)))


def _described(vocabulary: Vocabulary) -> str:
    return f"a {type(vocabulary).__name__} of {counted(vocabulary.size, 'id')}"
