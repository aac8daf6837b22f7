"""The programs of an engine: steps of several sizes, and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import meshtf as mtf
from meshtf.errors import ClusterError
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.serving.engine import EngineLimits
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.scheduler import Reads
from meshtf.serving.step_program import StepSizes, step_program
from meshtf.train.decoding.programs import LOG_LIKELIHOODS, SCORE, greatest_sizes, scoring_program, vocabulary_of
from meshtf.train.decoding.step_decoder import PromptStarter, predicts_first_token
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.saved_weights import Weights
from meshtf.train.training import Training

_NO_PROGRAM = """\
process 0 runs the program "{name}", and this process has {own}; give all processes the same flags"""


class EnginePrograms:
    """All programs of an engine, by name. They share the variables of `forward`, and one cache.

    A step takes longer with more tokens, and with longer texts. So there are programs for steps with and without
    prompts, each for several lengths.

    Attributes:
      options: the sizes of the engine.
      vocabulary: the vocabulary of the model's tokens.
      start_id: the token before every text.
      starts_prompts: whether `start_id` also comes before a prompt.
      forward: the model's forward pass, which scores texts.
      limits: the limits that requests must respect.
      num_pages: the number of pages of the cache.
      num_scores: the number of texts that are scored at once.
      steps: the sizes of the steps, by the program's name, the smallest first.

    Args:
      training: the training of the model.
      mesh_impl: the mesh, its devices and the layout.
      options: the sizes of the engine.

    Raises:
      ConfigurationError: if the model is no language model.
      GraphError: if the model cannot read prompts in parts.
      LayoutError: if the layout does not fit.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008
        self.options, model = options, training.model
        self.start_id = model.start_id if isinstance(model, PromptStarter) else 0
        self.starts_prompts = predicts_first_token(model)
        greatest, self.vocabulary = greatest_sizes(training), vocabulary_of(training)
        likeliest = min(options.max_likeliest, self.vocabulary.size)
        self.num_pages = options.pages(greatest.targets)
        longest = min(greatest.targets, self.num_pages * options.page_size)
        self.limits = EngineLimits(longest, greatest.targets, self.vocabulary.size, likeliest, options.form_seconds)
        self.num_scores = mesh_impl.shape.size
        self.forward = scoring_program(training, mesh_impl, dataclasses.replace(greatest, batch=self.num_scores))
        self.steps = _steps(options, self.limits, self.num_pages, mesh_impl.shape.size)
        self._send: Callable[[str, Mapping[str, np.ndarray]], None] | None = None
        self._programs: dict[str, mtf.Function] = {SCORE: self.forward}
        for name, sizes in self.steps.items():
            self._programs[name] = step_program(training, mesh_impl, sizes, self.forward.variables)

    def restore(self, folder: RunFolder, step: int | None = None, weights: Weights | str = Weights.TRAINED) -> int:
        """Restores the model's variables from a checkpoint. Returns the step of the checkpoint."""
        return folder.restore(self.forward, step=step, weights=weights)

    def share(self, send: Callable[[str, Mapping[str, np.ndarray]], None]) -> None:
        """Makes `run` first call `send`, with the program's name and its inputs in the order of `inputs`."""
        self._send = send

    @property
    def is_shared(self) -> bool:
        """Whether other processes run the same programs."""
        return self._send is not None

    @property
    def programs(self) -> Sequence[mtf.Function]:
        """All programs."""
        return list(self._programs.values())

    def inputs(self, name: str) -> dict[str, np.ndarray]:
        """Returns inputs with which a program reads no tokens.

        Raises:
          ClusterError: if there is no such program. Then another process has sent its name.
        """
        if name not in self._programs:
            raise ClusterError(_NO_PROGRAM.format(name=name, own=", ".join(self._programs)))
        return self.score_arrays([]) if name == SCORE else self.steps[name].empty()

    def run(self, name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a program on its inputs, and returns its results by name."""
        if self._send is not None:
            self._send(name, arrays)
        return {name: x.numpy() for name, x in self._programs[name](**arrays).items()}

    def compile(self) -> None:
        """Makes the cache, and compiles all programs by running them without tokens."""
        for name in (*self.steps, SCORE):
            self.run(name, self.inputs(name))

    def step_for(self, reads: Reads) -> str:
        """Returns the name of the smallest step that can read these tokens."""
        count = sum(each for _, each in reads)
        end = max(one.num_read + each for one, each in reads)
        return next(
            name for name, sizes in self.steps.items() if count <= sizes.tokens and end <= sizes.pages * sizes.page_size
        )

    def score_arrays(self, texts: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """Returns the inputs of `SCORE` for up to `num_scores` texts."""
        targets = np.zeros([self.num_scores, self.limits.max_scored], np.int32)
        weights = np.zeros(targets.shape, np.float32)
        for row, ids in enumerate(texts):
            targets[row, : len(ids)], weights[row, : len(ids)] = ids, 1.0
        return {"targets": targets, "targets_weights": weights}

    def scores_in(self, results: Mapping[str, np.ndarray], texts: Sequence[Sequence[int]]) -> list[list[float | None]]:
        """Returns the log-likelihoods of the tokens of texts, from the results of `SCORE`. See `Engine.score`."""
        found: list[list[float | None]] = []
        for row, ids in zip(results[LOG_LIKELIHOODS], texts, strict=False):
            found.append([float(x) for x in row[: len(ids)]])
            if ids and not self.starts_prompts:
                found[-1][0] = None
        return found


def _steps(options: EngineOptions, limits: EngineLimits, num_pages: int, cores: int) -> dict[str, StepSizes]:
    found: dict[str, StepSizes] = {}
    for kind, prompt_tokens in (("decode", 0), ("read", options.num_prompt_tokens)):
        for pages in options.page_counts(limits.max_length):
            found[f"{kind} {pages}"] = StepSizes(
                tokens=_multiple(options.num_rows + prompt_tokens, cores),
                rows=_multiple(options.num_rows, cores),
                length=min(limits.max_length, pages * options.page_size),
                pages=pages,
                page_size=options.page_size,
                num_pages=num_pages,
                num_likeliest=limits.max_likeliest,
                vocab_size=limits.vocab_size,
            )
    return found


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of
