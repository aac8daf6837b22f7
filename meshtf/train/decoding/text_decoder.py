"""Continues prompts and scores texts with a trained model, batch after batch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

import meshtf as mtf
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.decoding.drafts.draft_counts import DraftCounts
from meshtf.train.decoding.drafts.draft_model import SCOPE, Draft
from meshtf.train.decoding.drafts.speculative_program import speculative_program
from meshtf.train.decoding.encoded_text import (
    EncodedText,
    Extent,
    TextLimits,
    encoded_for_scoring,
    encoded_prompts,
    fitting_sizes,
    id_features,
)
from meshtf.train.decoding.forms.constrained_program import ConstrainedProgram
from meshtf.train.decoding.options import BEAM, Decoding
from meshtf.train.decoding.programs import (
    LOG_LIKELIHOODS,
    generation_program,
    greatest_sizes,
    scoring_program,
    vocabulary_of,
)
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.results import AddedToken, Continuation, LikelyToken, TextScore
from meshtf.train.decoding.step_decoder import predicts_first_token
from meshtf.train.decoding.stops import shortest_with_stop
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.saved_weights import Weights
from meshtf.train.training import Training


class ContinuedTexts:
    """Checked prompts, and the programs that continue them. Nothing has run.

    Attributes:
      forward: the model's forward pass.
      program: continues texts. Both use the variables of a given store, or of a new one.
      count: the number of prompts.
      drafted: how much a draft has helped so far; None without one.

    Raises:
      ConfigurationError: if the model is not one of text, a prompt does not fit, or the draft does not fit the model.
      LayoutError: if the layout does not fit the programs.
    """

    def __init__(
        self,
        training: Training,
        mesh_impl: MeshImpl,
        decoding: Decoding,
        prompts: Sequence[PromptText],
        variables: VariableStore | None = None,
        draft: Draft | None = None,
    ) -> None:
        greatest, self._vocabulary = greatest_sizes(training), vocabulary_of(training)
        self._decoding, self._stops = decoding, decoding.stops(self._vocabulary)
        self._limits = TextLimits.of(greatest, decoding)
        self._texts = encoded_prompts(prompts, self._vocabulary, self._limits)
        self.count = len(self._texts)
        extent = Extent()
        for text in self._texts:
            extent = extent.with_text(text, self._limits.end_of(text))
        self._sizes = fitting_sizes(extent, greatest, mesh_impl.shape.size, decoding.batch_size)
        # Drawn tokens depend on a counter of runs. It is a variable that no checkpoint contains.
        self.forward = scoring_program(training, mesh_impl, self._sizes, variables)
        self.drafted, kept = None, self.forward.variables
        if draft is not None:
            self.drafted = DraftCounts(draft.num_tokens)
            self.program = speculative_program(training, draft, mesh_impl, self._sizes, decoding, kept)
            self._draft = scoring_program(draft.training, mesh_impl, self._sizes, kept)
            return
        make = generation_program if decoding.constraint is None else ConstrainedProgram
        self.program = make(training, mesh_impl, self._sizes, decoding, kept)

    @property
    def programs(self) -> Sequence[mtf.Function]:
        """The programs that continue texts."""
        return self.program.programs if isinstance(self.program, ConstrainedProgram) else [self.program]

    @property
    def has_encoder(self) -> bool:
        """Whether prompts are an encoder's inputs, so that the added text stands by itself."""
        return self._limits.has_encoder

    def restore(self, folder: RunFolder, step: int | None = None, weights: Weights | str = Weights.TRAINED) -> int:
        """Restores the model from a checkpoint. Returns its step."""
        return folder.restore(self.forward, step=step, weights=weights)

    def restore_draft(self, folder: RunFolder) -> int:
        """Restores the draft from the newest checkpoint of its run. Returns the step of the checkpoint."""
        return folder.restore(self._draft, scope=SCOPE)

    def count_runs_from(self, number: int) -> None:
        """Makes the next random tokens depend on this number, whatever ran before."""
        self.program.initialize()
        if isinstance(self.program, ConstrainedProgram):
            self.program.num_runs = number
            return
        count = f"{self.program.name}/step"
        if count in self.program.variables:
            self.program.variables[count] = number

    def __iter__(self) -> Iterator[list[Continuation]]:
        """Yields the continuations of each prompt in turn, the best first."""
        for texts in _batches(self._texts, self._sizes.batch):
            results = self.program(**self._arrays(texts))
            found = {name: x.numpy() for name, x in results.items()}
            if self.drafted is not None:
                self.drafted.add(found, [len(text.targets) for text in texts])
            for row, text in enumerate(texts):
                yield self._continuations(text, {name: array[row] for name, array in found.items()})

    def _arrays(self, texts: Sequence[EncodedText]) -> dict[str, np.ndarray]:
        lengths = [len(text.targets) for text in texts]
        nothing = [max(lengths)] * (self._sizes.batch - len(texts))
        ends = [self._limits.end_of(text) for text in texts]
        return {
            **id_features(texts, self._sizes, self._vocabulary.padding_id),
            "lengths": np.array(lengths + nothing, np.int32),
            "ends": np.array(ends + nothing, np.int32),
        }

    def _continuations(self, text: EncodedText, found: Mapping[str, np.ndarray]) -> list[Continuation]:
        """Returns the continuations of one prompt, the best first. `found`: its `Sequences`, over ranks or without."""
        is_single = found["lengths"].ndim == 0
        ranks = [found] if is_single else [{k: x[i] for k, x in found.items()} for i in range(len(found["lengths"]))]
        # Only beam search may find fewer sequences, with scores of -inf. A model with NaN in its logits has NaN here.
        is_found = [self._decoding.method != BEAM or not np.isneginf(one["scores"]) for one in ranks]
        continued = [self._continuation(text, one) for one in itertools.compress(ranks, is_found)]
        # A stop in the text may have cut some of them, which changes their scores.
        continued.sort(key=lambda one: one.score, reverse=True)
        best = continued[: self._decoding.num_results]
        return [dataclasses.replace(one, rank=rank) for rank, one in enumerate(best, 1)]

    def _continuation(self, text: EncodedText, found: Mapping[str, np.ndarray]) -> Continuation:
        first = len(text.targets)
        added = found["ids"][first : found["lengths"]].tolist()
        log_likelihood, score = float(found["log_likelihoods"]), float(found["scores"])
        is_stopped = bool(added) and added[-1] in self._stops.ids
        all_text = self._text_added(text.targets, added[:-1] if is_stopped else added)
        cut = self._stops.cut(all_text)
        if cut is not None:
            count = shortest_with_stop(added, lambda ids: self._text_added(text.targets, ids), self._stops)
            added, is_stopped = added[:count], True
            likelihoods = found["token_log_likelihoods"][first : first + count].astype(np.float64)
            log_likelihood, score = float(likelihoods.sum()), float(likelihoods.mean())
        return Continuation(
            prompt=text.source.text,
            rank=1,
            text=all_text if cut is None else cut,
            ids=added,
            log_likelihood=log_likelihood,
            score=score,
            is_stopped=is_stopped,
            tokens=None if self._decoding.logprobs is None else self._tokens(added, first, found),
        )

    def _tokens(self, added: Sequence[int], first: int, found: Mapping[str, np.ndarray]) -> list[AddedToken]:
        """The added tokens with their likelihoods. `first` is the position of the first one."""

        def likely(token: int, log_likelihood: np.ndarray) -> LikelyToken:
            return LikelyToken(token, self._vocabulary.decode([token]), float(log_likelihood))

        def likeliest(place: int) -> list[LikelyToken]:
            if not self._decoding.logprobs:
                return []
            pairs = zip(found["likeliest_ids"][place].tolist(), found["likeliest_log_likelihoods"][place], strict=True)
            return [likely(*pair) for pair in pairs]

        chosen = [likely(token, found["token_log_likelihoods"][place]) for place, token in enumerate(added, first)]
        return [AddedToken(x.id, x.text, x.log_likelihood, likeliest(i)) for i, x in enumerate(chosen, first)]

    def _text_added(self, prompt: Sequence[int], added: Sequence[int]) -> str:
        # A vocabulary may write a piece differently at the beginning of a text, so the whole text is decoded.
        before, whole = self._vocabulary.decode(prompt), self._vocabulary.decode([*prompt, *added])
        return whole[len(before) :] if whole.startswith(before) else self._vocabulary.decode(added)


class ScoredTexts:
    """Checked texts, and the program that scores them. Nothing has run.

    The texts are read twice, one by one: to check them, and to score them. So they need not fit in memory.

    Attributes:
      forward: the model's forward pass, which computes the scores.
      count: the number of texts.

    Args:
      training: the training of the model.
      mesh_impl: the mesh of the program.
      decoding: the options `batch_size` and `max_length`.
      texts: the texts. They can be iterated over several times.
      num_done: how many of the first texts were scored before, and are skipped.

    Raises:
      ConfigurationError: if the model is not one of text, or a text does not fit.
      LayoutError: if the layout does not fit the program.
    """

    def __init__(
        self,
        training: Training,
        mesh_impl: MeshImpl,
        decoding: Decoding,
        texts: Iterable[PromptText],
        num_done: int = 0,
    ) -> None:
        greatest, self._vocabulary = greatest_sizes(training), vocabulary_of(training)
        self._texts, self._limits, self._num_done = texts, TextLimits.of(greatest, decoding), num_done
        extent = Extent()
        for text in self._encoded():
            extent = extent.with_text(text, len(text.targets))
        self.count = extent.count
        self._sizes = fitting_sizes(extent, greatest, mesh_impl.shape.size, decoding.batch_size)
        self.forward = scoring_program(training, mesh_impl, self._sizes)
        self._first_predicted = 0 if predicts_first_token(training.model) else 1

    @property
    def programs(self) -> Sequence[mtf.Function]:
        """The program that scores texts."""
        return [self.forward]

    def _encoded(self) -> Iterator[EncodedText]:
        return encoded_for_scoring(self._texts, self._vocabulary, self._limits)

    def restore(self, folder: RunFolder, step: int | None = None, weights: Weights | str = Weights.TRAINED) -> int:
        """Restores the model from a checkpoint. Returns its step."""
        return folder.restore(self.forward, step=step, weights=weights)

    def __iter__(self) -> Iterator[TextScore]:
        """Yields the score of each text in turn, except those that were scored before."""
        for texts in _batches(itertools.islice(self._encoded(), self._num_done, None), self._sizes.batch):
            features = id_features(texts, self._sizes, self._vocabulary.padding_id)
            counts = [len(text.targets) for text in texts] + [0] * (self._sizes.batch - len(texts))
            weights = (np.arange(self._sizes.targets) < np.array(counts)[:, None]).astype(np.float32)
            results = self.forward(**features, targets_weights=weights)
            found = results[LOG_LIKELIHOODS].numpy().astype(np.float64)
            for text, row in zip(texts, found, strict=False):
                predicted = text.targets[self._first_predicted :]
                num_bytes = self._vocabulary.num_bytes(predicted)
                yield TextScore(text.source.text, float(row.sum()), len(predicted), num_bytes)


def _batches(texts: Iterable[EncodedText], size: int) -> Iterator[list[EncodedText]]:
    waiting = iter(texts)
    while batch := list(itertools.islice(waiting, size)):
        yield batch
