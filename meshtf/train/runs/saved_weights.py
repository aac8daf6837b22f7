"""Chooses which weights of a checkpoint a program reads: the trained ones, or their means over the steps."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import meshtf as mtf
from meshtf.checkpoint import SavedCheckpoint
from meshtf.ops.variables.variable import Variable
from meshtf.optimize.moving_average import AVERAGE
from meshtf.train.configuration import ConfigurationError


class Weights(enum.StrEnum):
    """TRAINED: the weights as training left them. AVERAGE: their means, as `MovingAverageOptimizer` keeps them."""

    TRAINED = "trained"
    AVERAGE = "average"


_NO_AVERAGES = """\
checkpoint {folder} has no averages of the weights of program "{program}": no tensor in it is called <name>/{average}.
Only a training with MovingAverageOptimizer keeps averages. For the weights as they were trained, give
--weights=trained."""

_OTHER_DTYPE = """\
checkpoint {folder}: {name} is {own}, and its average {mean}, which a program of these weights cannot hold.
Evaluate them as they were trained: --weights=trained."""


def sources_in(
    saved: SavedCheckpoint, program: mtf.Function, weights: Weights, scope: str | None = None
) -> dict[str, str]:
    """Returns the name in the checkpoint of each tensor of the program that has another name there.

    Args:
      saved: the checkpoint.
      program: the program.
      weights: the weights that the program reads.
      scope: the scope in which the program has the model; None if its names are those of the checkpoint.

    Raises:
      ConfigurationError: if there are no averages, or if their dtype is not that of the weights.
    """
    sources: dict[str, str] = {}
    if scope is not None:
        variables = [v for v in program.graph.variables.values() if isinstance(v, Variable)]
        names = [name for variable in variables for name in variable.saved_names]
        sources = {name: name.removeprefix(f"{scope}/") for name in names}
    return sources | averages_in(saved, program, sources) if weights is Weights.AVERAGE else sources


def averages_in(saved: SavedCheckpoint, program: mtf.Function, sources: Mapping[str, str]) -> dict[str, str]:
    """Returns the name of the average of each tensor of the program, if the checkpoint has one.

    A weight that was not trained has none. `sources` maps names in the program to names in the checkpoint, where they
    differ.

    Raises:
      ConfigurationError: if there are none, or if their dtype is not that of the weights.
    """
    averages: dict[str, str] = {}
    for variable in program.graph.trainable_variables:
        for name in variable.saved_names:
            source = f"{sources.get(name, name)}/{AVERAGE}"
            average = saved.tensors.get(source)
            if average is None:
                continue
            if average.dtype != variable.slice_dtype:
                own, mean = variable.slice_dtype.name, average.dtype.name
                raise ConfigurationError(_OTHER_DTYPE.format(folder=saved.place, name=name, own=own, mean=mean))
            averages[name] = source
    if not averages:
        raise ConfigurationError(_NO_AVERAGES.format(folder=saved.place, program=program.name, average=AVERAGE))
    return averages
