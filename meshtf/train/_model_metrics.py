"""Calls a model for its metrics of a batch, and checks them before they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import meshtf as mtf
from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.monitoring.metrics import OWN_NAMES
from meshtf.train.training import Metric, Training

_NO_FEATURE = """\
{model} asks for the feature "{name}", but {task} has {features}{hint}
The task (Training.task) and the model (Training.model) do not fit together."""

_NO_METRICS = """\
{model}.metrics(features, is_training={is_training}) returned {found}, and must return a dict of metrics by name, as
{{"loss": loss}}: tensors [batch, ...], or pairs (values, weights) of them."""


class Features(dict[str, mtf.Tensor]):
    """A batch's features by name. Reading a missing one raises an error that lists the available features."""

    def __init__(self, features: Mapping[str, mtf.Tensor], training: Training) -> None:
        super().__init__(features)
        self._model, self._task = type(training.model).__name__, training.task.name

    def __missing__(self, name: str) -> mtf.Tensor:
        raise ConfigurationError(
            _NO_FEATURE.format(
                model=self._model,
                name=name,
                task=self._task,
                features=", ".join(map(str, self)) or "none",
                hint=nearest(str(name), self),
            )
        )


def model_metrics(training: Training, features: Mapping[str, mtf.Tensor], *, is_training: bool) -> dict[str, Metric]:
    """Returns the metrics that the training's model computes for a batch.

    Raises:
      ConfigurationError: if the model reads a feature that the task lacks, or does not return a dict of metrics.
    """
    with configuration_errors():
        found = training.model.metrics(Features(features, training), is_training=is_training)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        model = type(training.model).__name__
        raise ConfigurationError(_NO_METRICS.format(model=model, is_training=is_training, found=_described(found)))
    check_names(found)
    return dict(found)


def check_names(names: Iterable[str]) -> None:
    """Raises ConfigurationError if a metric has the name of a field that every line of `metrics.jsonl` has."""
    for name in names:
        if name in OWN_NAMES:
            raise ConfigurationError(
                f'a metric is called "{name}", which is a key of every line of metrics.jsonl; give it another name'
            )


def _described(found: Any) -> str:
    if isinstance(found, Mapping):
        return f"a dict with keys {list(found)!r}"
    return "nothing" if found is None else f"{found!r:.100}"
