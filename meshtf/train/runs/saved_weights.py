"""Chooses the weights of a checkpoint that a program takes: the trained ones, or their means over the steps."""

from __future__ import annotations

import enum

import meshtf as mtf
from meshtf.checkpoint import SavedCheckpoint
from meshtf.optimize.moving_average import AVERAGE
from meshtf.train.configuration import ConfigurationError


class Weights(enum.StrEnum):
    """TRAINED: the weights as training left them. AVERAGE: their means, as `MovingAverageOptimizer` keeps them."""

    TRAINED = "trained"
    AVERAGE = "average"


_NO_AVERAGES = """\
checkpoint {folder} has no averages of the weights of program "{program}": no tensor in it is called <name>/{average}.
Averages are kept by a training with MovingAverageOptimizer; the weights as they were trained are --weights=trained."""

_OTHER_DTYPE = """\
checkpoint {folder}: {name} is {own}, and its average {mean}, which a program of these weights cannot hold.
Evaluate them as they were trained: --weights=trained."""


def averages_in(saved: SavedCheckpoint, program: mtf.Function) -> dict[str, str]:
    """Returns the name of the average of each tensor of the program, if the checkpoint has one.

    A weight that was not trained has none.

    Raises:
      ConfigurationError: if there are none, or if they are more precise than the weights.
    """
    averages: dict[str, str] = {}
    for variable in program.graph.trainable_variables:
        for name in variable.saved_names:
            average = saved.tensors.get(f"{name}/{AVERAGE}")
            if average is None:
                continue
            if average.dtype != variable.slice_dtype:
                own, mean = variable.slice_dtype.name, average.dtype.name
                raise ConfigurationError(_OTHER_DTYPE.format(folder=saved.place, name=name, own=own, mean=mean))
            averages[name] = f"{name}/{AVERAGE}"
    if not averages:
        raise ConfigurationError(_NO_AVERAGES.format(folder=saved.place, program=program.name, average=AVERAGE))
    return averages
