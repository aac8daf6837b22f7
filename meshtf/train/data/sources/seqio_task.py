"""Tasks of seqio by name, as documents of tokens."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gin
import numpy as np

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Document, document_of_ids

MISSING_SEQIO = """\
SeqioTask reads with seqio, which is not installed.
Install it with the project's extra: pip install 'meshtf[seqio]'"""

NO_SUCH_TASK = """\
seqio has no task "{name}"{nearest}
A line `import my_tasks` in the gin file imports the module that registers it."""

MIXTURE = """\
"{name}" is a mixture of seqio, which never ends and cannot be read from a given position. meshtf mixes its tasks
itself, at the same rates. Write this in gin, in addition to the vocabulary, the length and the rest of TextTask:
{lines}"""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class SeqioTask:
    """Every example of a task of seqio, as the tokens that its preprocessors and vocabularies made.

    This library does the packing, batches, order and objective. The ids must be those of `TextTask.vocabulary`.

    Attributes:
      task: its name.
      split: the split of the task's source.
      features: the features that are a document's tokens: one, or ("inputs", "targets") for `TextPairs`.
      sequence_length: the lengths by feature that preprocessors receive, and to which examples are cut. None: no
        cut.
      seed: the seed of preprocessors that draw random numbers.

    Raises:
      ConfigurationError: when documents are read: if seqio is not installed, has no such task or split, or an example
        lacks a feature of ids.
    """

    task: str
    split: str = "train"
    features: str | Sequence[str] = "targets"
    sequence_length: Mapping[str, int] | None = None
    seed: int = 0

    def __str__(self) -> str:
        return f"seqio's {self.task}, {self.split}"

    def documents(self) -> Iterator[Document]:
        names = (self.features,) if isinstance(self.features, str) else tuple(self.features)
        for number, example in enumerate(self._examples(), start=1):
            name = f"seqio's {self.task}, {self.split}, example {number}"
            parts = [_ids(example, feature, name) for feature in names]
            if any(len(part) for part in parts):
                yield document_of_ids(name, parts)

    def _examples(self) -> Iterator[Mapping[str, np.ndarray]]:
        try:
            seqio = importlib.import_module("seqio")  # an optional dependency
        except ImportError as error:
            raise ConfigurationError(MISSING_SEQIO) from error
        known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        if self.task not in known:
            raise ConfigurationError(NO_SUCH_TASK.format(name=self.task, nearest=nearest(self.task, known)))
        if self.task in seqio.MixtureRegistry.names():
            raise ConfigurationError(_as_mixture(seqio.MixtureRegistry.get(self.task)))
        task = seqio.get_mixture_or_task(self.task)
        if self.split not in task.splits:
            raise ConfigurationError(
                f'seqio\'s task "{self.task}" has the splits {", ".join(task.splits)}, and SeqioTask.split is '
                f"{self.split!r}{nearest(self.split, list(task.splits))}"
            )
        length = None if self.sequence_length is None else dict(self.sequence_length)
        dataset = task.get_dataset(length, self.split, use_cached=False, shuffle=False, seed=self.seed, num_epochs=1)
        return dataset.as_numpy_iterator()


def _as_mixture(mixture: Any) -> str:
    """Returns a message that a mixture cannot be a source of documents, with gin lines for its tasks and rates."""
    tasks = list(mixture.tasks)
    scopes = [re.sub(r"\W", "_", task.name) for task in tasks]
    lines = [
        "Training.task = @Mixture()",
        f"Mixture.tasks = [{', '.join(f'@{scope}/TextTask()' for scope in scopes)}]",
        f"Mixture.names = {[task.name for task in tasks]}",
        f"Mixture.rates = {[float(mixture.get_rate(task)) for task in tasks]}",
    ]
    for scope, task in zip(scopes, tasks, strict=True):
        lines += [f"{scope}/TextTask.source = @{scope}/SeqioTask()", f"{scope}/SeqioTask.task = {task.name!r}"]
    return MIXTURE.format(name=mixture.name, lines="\n".join(f"    {line}" for line in lines))


def _ids(example: Mapping[str, Any], feature: str, name: str) -> np.ndarray:
    advice = "SeqioTask.features says which features are the tokens."
    if feature not in example:
        raise ConfigurationError(
            f'{name} has no feature "{feature}", only {", ".join(sorted(example))}{nearest(feature, list(example))}\n'
            f"{advice}"
        )
    found = np.asarray(example[feature])
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigurationError(f'{name}: the feature "{feature}" holds no row of ids. {advice}')
    return found.astype(np.int64)
