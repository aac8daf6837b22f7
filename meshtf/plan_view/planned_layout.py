"""One layout of a program, planned: its settings, its report, and what a machine would make of it."""

from __future__ import annotations

import dataclasses

from meshtf.costs import Machine, Prediction
from meshtf.lowering.report.report import Report


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What a plan may be asked for with other values; texts as gin and flags have them."""

    mesh_shape: str
    layout: str
    parameter_layout: str
    activation_layout: str
    batch_size: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedLayout:
    """A layout by its label, with what it comes to.

    Attributes:
      label: what it is called beside others.
      settings: of it; of one that is not possible, those that were asked for.
      headline: model, task, mesh and sizes, in a line.
      report: of a training step; None where the layout is not possible.
      prediction: of its time, where a machine was named.
      machine: that one.
      error: why the layout is not possible.
      search: of a layout that was searched for, what the search says of it.
    """

    label: str
    settings: Settings
    headline: str = ""
    report: Report | None = None
    prediction: Prediction | None = None
    machine: Machine | None = None
    error: str = ""
    search: str = ""
