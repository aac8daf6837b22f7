"""One planned layout of a program: its settings, its report, and its prediction on a machine."""

from __future__ import annotations

import dataclasses

from meshtf.costs import Machine, Prediction
from meshtf.lowering.report.report import Report


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a plan that can be changed. Texts have the form of gin values and flags."""

    mesh_shape: str
    layout: str
    parameter_layout: str
    activation_layout: str
    batch_size: int


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedLayout:
    """A layout with its label and its plan.

    Attributes:
      label: its name beside other layouts.
      settings: its settings. For an impossible layout, the requested settings.
      headline: model, task, mesh and sizes, in a line.
      report: the report of a training step. None if the layout is impossible.
      prediction: the prediction of its time, if a machine was named.
      machine: that machine.
      error: why the layout is impossible.
      search: the text of the search, if the layout was searched for.
    """

    label: str
    settings: Settings
    headline: str = ""
    report: Report | None = None
    prediction: Prediction | None = None
    machine: Machine | None = None
    error: str = ""
    search: str = ""
