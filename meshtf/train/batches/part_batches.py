"""Evaluates a batch that is not full, if a metric describes the batch as a whole."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import meshtf as mtf
from meshtf.errors import MeshtfError
from meshtf.layout import LayoutRules
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.configuration import ConfigurationError
from meshtf.train.step_programs import EvaluationProgram, evaluation_step
from meshtf.train.training import Training

_CANNOT_BE_BUILT = """\
the last batch of held-out examples has only {count}. Padding it would make the model's metric "{metric}" wrong:
it has no dimension "batch", so it describes a whole batch. For a batch of {count} the model cannot be built:
{error}
Give the metric a value for each example, [batch], or choose Training.batch_size so that it divides the number of
held-out examples."""


class PartBatches:
    """Programs for fewer examples than a batch has. They share the variables of the program for whole batches."""

    def __init__(self, training: Training, mesh_impl: MeshImpl, whole: EvaluationProgram) -> None:
        self._training, self._mesh_impl, self._whole = training, mesh_impl, whole
        self._programs: dict[int, mtf.Function] = {}

    def program(self, count: int) -> mtf.Function:
        """Returns the evaluation step for a batch of `count` examples.

        Raises:
          ConfigurationError: if the model cannot be built for it.
        """
        if count not in self._programs:
            self._programs[count] = self._built(count)
        return self._programs[count]

    def _built(self, count: int) -> mtf.Function:
        part = dataclasses.replace(self._training, batch_size=count, num_microbatches=1)
        failure: Exception | None = None
        for mesh_impl in self._meshes(part.batch):
            try:
                return evaluation_step(part, mesh_impl, self._whole.step.variables)
            except (MeshtfError, ValueError) as error:
                failure = failure or error
        metric = self._whole.of_whole_batch[0]
        raise ConfigurationError(_CANNOT_BE_BUILT.format(count=count, metric=metric, error=failure))

    def _meshes(self, batch: mtf.Dimension) -> Iterator[MeshImpl]:
        """Yields the mesh, and then the same mesh with an unsplit batch, and with nothing split: `count` may
        not divide.
        """
        yield self._mesh_impl
        rules = self._mesh_impl.layout_rules.rules
        options = dataclasses.replace(self._mesh_impl.options, activation_layout=None)
        for left in ([rule for rule in rules if rule[0] != batch.name], []):
            # Every backend is a class with these attributes. Its other attributes stay as they are.
            other = copy.copy(self._mesh_impl)
            object.__setattr__(other, "layout_rules", LayoutRules(left))
            object.__setattr__(other, "options", options)
            yield other
