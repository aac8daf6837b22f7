"""Training: data, loop, metrics and configuration. It gets its model from gin, and imports none."""

from __future__ import annotations

from meshtf.train.loop import Evaluation, Model, Trainer, Training
from meshtf.train.task import Task

__all__ = ["Evaluation", "Model", "Task", "Trainer", "Training"]
