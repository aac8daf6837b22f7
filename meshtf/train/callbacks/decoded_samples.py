"""Continues prompts while a model learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gin

from meshtf.train.callback import Callback, Run
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts
from meshtf.train.evaluation import Evaluation
from meshtf.train.layouts.without_pipelines import without_pipelines
from meshtf.train.monitoring.metrics import MetricsLog
from meshtf.train.trainer import Trainer

_PIPELINE = """\
DecodedSamples shares the variables of the training, and decoding cannot share those of a pipeline, which are divided
into stages. Leave it out; meshtf-decode continues prompts with the run's checkpoints."""


@gin.configurable(module="meshtf.train")
class DecodedSamples(Callback):
    """Continues prompts after each evaluation, shows the texts, and writes them to `samples.jsonl` in the run's folder.

    The programs share the variables of the training and do not copy them. The trained values are bit-identical to those
    without samples. Draws depend only on the seed and the step.

    Args:
      prompts: the texts to continue.
      decoding: the options of decoding. The default is greedy, with 32 tokens at most.

    Raises:
      ConfigurationError: if a value is impossible. When a training begins: also if the model has a pipeline.
    """

    def __init__(self, prompts: Sequence[str], decoding: Decoding | None = None) -> None:
        is_list = isinstance(prompts, list | tuple) and bool(prompts)
        if not is_list or not all(isinstance(prompt, str) for prompt in prompts):
            raise ConfigurationError(f"DecodedSamples.prompts must be a list of texts, and is {prompts!r}")
        if decoding is not None and not isinstance(decoding, Decoding):
            raise ConfigurationError(
                f"DecodedSamples.decoding is no Decoding: {decoding!r}; in gin @Decoding() makes one"
            )
        self._prompts = [PromptText(text, f"DecodedSamples.prompts[{number}]") for number, text in enumerate(prompts)]
        self._decoding = decoding or Decoding(max_new_tokens=32)
        self._texts: ContinuedTexts | None = None
        self._log: MetricsLog | None = None

    def check(self, trainer: Trainer) -> None:
        if without_pipelines(trainer.training.model) is not trainer.training.model:
            raise ConfigurationError(_PIPELINE)
        ContinuedTexts(trainer.training, trainer.mesh_impl, self._decoding, self._prompts)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        self._texts = None
        self._log = MetricsLog(run.folder.samples, run.first_step)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        # The checkpoint at the end of a run does not know of the evaluation after it, which comes again with the next
        # start. Its texts are the same, and replace those that are there.
        if self._log is not None and any(line["step"] == run.step for line in self._log.lines):
            self._log = MetricsLog(run.folder.samples, run.step - 1)
        self._texts = self._texts or self._sharing_variables(run.trainer)
        self._texts.count_runs_from(run.step)
        for number, continuations in enumerate(self._texts, 1):
            for found in continuations:
                text = found.as_text(number, shows_prompt=not self._texts.has_encoder)
                print(f"step {run.step}: {_printable(text)}", flush=True)
                self._write(run.step, {"prompt": found.prompt, "rank": found.rank, "text": found.text})

    def _sharing_variables(self, trainer: Trainer) -> ContinuedTexts:
        """Returns the programs, in a store that shares the training's variables. Checkpoints do not contain its
        other variables.
        """
        variables = trainer.variables.renamed({name: name for name in trainer.variables})
        return ContinuedTexts(trainer.training, trainer.mesh_impl, self._decoding, self._prompts, variables)

    def _write(self, step: int, values: dict[str, Any]) -> None:
        assert self._log is not None
        self._log.write(step, values)


def _printable(text: str) -> str:
    """Returns the text without characters that control a terminal: a model that has learnt little may write any."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
