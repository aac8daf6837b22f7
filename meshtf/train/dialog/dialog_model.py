"""A trained model in a dialog: it draws and rates responses, and continues dialogs with the results of tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary, inner_ids
from meshtf.train.decoding.options import GREEDY, Decoding
from meshtf.train.decoding.programs import (
    TARGETS,
    Sizes,
    generation_program,
    greatest_sizes,
    scoring_program,
    text_model,
    text_program,
    vocabulary_of,
)
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.step_decoder import PromptStarter
from meshtf.train.dialog.candidates import RatingForm, rated_candidates
from meshtf.train.dialog.ranking import Candidate, SampleAndRank
from meshtf.train.dialog.roles import ATTRIBUTES, NO, YES
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.saved_weights import Weights
from meshtf.train.training import Training

CANDIDATES = "candidates"

_TOO_LONG = """\
{text!r} has {count:,} tokens, and a prompt of a dialog may have {limit:,}: the model has {length:,} positions, of \
which a response takes up to {response:,} (SampleAndRank.max_tokens) and a rating {rating:,}."""

_NO_ROOM = """\
the model has {length:,} positions, too few for a response of up to {response:,} tokens (SampleAndRank.max_tokens) and \
a rating."""

_SEVERAL_TOKENS = """\
{text!r} must be one token to {use}, and the vocabulary writes it as the ids {ids}. Give it as a word of its own, such \
as WordVocabulary.words or a user-defined symbol of SentencePiece."""

_NO_START = """\
{model} has no token before a text (starts_prompts = False), which sample-and-rank needs."""


class DialogModel:
    """The programs of a dialog, with the variables of one model.

    Attributes:
      forward: the model's forward pass.
      options: how a response is chosen.
      batch_size: how many dialogs are continued at a time.

    Args:
      training: the training of the model.
      mesh_impl: the mesh of the programs.
      options: how a response is chosen.
      batch_size: how many dialogs are continued at a time.

    Raises:
      ConfigurationError: if the model is not one of text, is too short, or its vocabulary lacks tokens for ratings.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl, options: SampleAndRank, batch_size: int) -> None:
        greatest, self._vocabulary = greatest_sizes(training), vocabulary_of(training)
        model = training.model
        if greatest.inputs is not None or (isinstance(model, PromptStarter) and not model.starts_prompts):
            raise ConfigurationError(_NO_START.format(model=type(model).__name__))
        self.options, self._stop = options, _single(self._vocabulary, "\n", "end a turn")
        self._form = rating_form(self._vocabulary, ATTRIBUTES)
        self._length = greatest.targets
        self._limit = self._length - options.max_tokens - self._form.num_asked - 1
        if self._limit < 1:
            raise ConfigurationError(_NO_ROOM.format(length=self._length, response=options.max_tokens))
        sizes = Sizes(batch_size, self._length, prompts=self._limit)
        self.batch_size = batch_size
        self.forward = scoring_program(training, mesh_impl, sizes)
        self._candidates = self._candidates_program(training, mesh_impl, sizes)
        decoding = Decoding(method=GREEDY, stop_ids=(self._stop,))
        self._greedy = generation_program(training, mesh_impl, sizes, decoding, self.forward.variables)

    @property
    def programs(self) -> Sequence[mtf.Function]:
        """The programs that continue dialogs."""
        return [self._candidates, self._greedy]

    def restore(self, folder: RunFolder, step: int | None = None, weights: Weights | str = Weights.TRAINED) -> int:
        """Restores the model from a checkpoint. Returns its step."""
        return folder.restore(self.forward, step=step, weights=weights)

    def check(self, prompts: Sequence[str]) -> None:
        """Raises ConfigurationError for a prompt that is too long."""
        for prompt in prompts:
            self._encoded(prompt)

    def has_room(self, prompt: str) -> bool:
        """Whether a prompt leaves room for a response and a rating."""
        return len(self._vocabulary.encode(prompt)) <= self._limit

    def candidates(self, prompts: Sequence[str]) -> Iterator[list[Candidate]]:
        """Draws responses to each prompt, which ends where a response begins, and rates them."""
        for arrays, count in self._batches(prompts):
            found = {name: x.numpy() for name, x in self._candidates(**arrays).items()}
            for row in range(count):
                yield [self._candidate(found, row, n, arrays["lengths"][row]) for n in range(len(found["ids"][row]))]

    def continued(self, prompts: Sequence[str]) -> list[str]:
        """Continues each prompt to the end of its turn by the most likely tokens."""
        texts: list[str] = []
        for arrays, count in self._batches(prompts):
            found = self._greedy(**arrays)
            ids, lengths = found["ids"].numpy(), found["lengths"].numpy()
            begins = arrays["lengths"]
            texts += [self._text(ids[row, begins[row] : lengths[row]]) for row in range(count)]
        return texts

    def _candidates_program(self, training: Training, mesh_impl: MeshImpl, sizes: Sizes) -> mtf.Function:
        model, options = text_model(training), self.options

        def drawn(targets: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
            prompts = Prompts(targets, lengths, ends, sizes.prompts)
            found = rated_candidates(
                model.incremental_decoder({}),
                prompts,
                options.sampling,
                self._stop,
                num_samples=options.num_candidates,
                form=self._form,
            )
            return found.by_name()

        inputs = sizes.features | {name: mtf.TensorSpec(sizes.one_each, tf.int32) for name in ("lengths", "ends")}
        return text_program(
            drawn,
            training,
            mesh_impl,
            inputs,
            variables=self.forward.variables,
            seed=options.seed,
            name=CANDIDATES,
        )

    def _batches(self, prompts: Sequence[str]) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """The inputs of the programs, and how many of their rows are prompts. The others have no room for a token."""
        waiting = iter([self._encoded(text) for text in prompts])
        while batch := list(itertools.islice(waiting, self.batch_size)):
            ids = np.zeros([self.batch_size, self._length], np.int32)
            # Rows without a prompt get the length of one, since loops start at the end of the shortest.
            lengths = np.full(self.batch_size, len(batch[0]), np.int32)
            ends = lengths.copy()
            for row, tokens in enumerate(batch):
                ids[row, : len(tokens)] = tokens
                lengths[row], ends[row] = len(tokens), len(tokens) + self.options.max_tokens
            yield {TARGETS: ids, "lengths": lengths, "ends": ends}, len(batch)

    def _encoded(self, text: str) -> list[int]:
        ids = self._vocabulary.encode(text)
        if len(ids) > self._limit:
            raise ConfigurationError(
                _TOO_LONG.format(
                    text=text if len(text) < 60 else text[:57] + "...",
                    count=len(ids),
                    limit=self._limit,
                    length=self._length,
                    response=self.options.max_tokens,
                    rating=self._form.num_asked + 1,
                )
            )
        return ids

    def _candidate(self, found: Mapping[str, np.ndarray], row: int, number: int, begin: int) -> Candidate:
        ids = found["ids"][row, number, begin : found["lengths"][row, number]]
        rated = zip(ATTRIBUTES, found["ratings"][row, number].tolist(), strict=True)
        return Candidate(self._text(ids), float(found["log_likelihoods"][row, number]), dict(rated))

    def _text(self, ids: np.ndarray) -> str:
        return self._vocabulary.decode(ids.tolist()).strip()


def rating_form(vocabulary: Vocabulary, attributes: Sequence[str]) -> RatingForm:
    """The tokens that ask for the ratings of attributes.

    Raises:
      ConfigurationError: if a rating has several tokens, or attributes have different numbers of them.
    """
    asked = [inner_ids(vocabulary, f"\n{attribute}") for attribute in attributes]
    if len({len(ids) for ids in asked}) > 1:
        longest = max(attributes, key=lambda name: len(inner_ids(vocabulary, f"\n{name}")))
        raise ConfigurationError(
            _SEVERAL_TOKENS.format(text=longest, use="ask for a rating", ids=inner_ids(vocabulary, longest))
        )
    return RatingForm(asked, _single(vocabulary, YES, "rate a text"), _single(vocabulary, NO, "rate a text"))


def _single(vocabulary: Vocabulary, text: str, use: str) -> int:
    ids = inner_ids(vocabulary, text)
    if len(ids) != 1:
        raise ConfigurationError(_SEVERAL_TOKENS.format(text=text, use=use, ids=ids))
    return ids[0]
