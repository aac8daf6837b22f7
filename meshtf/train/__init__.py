"""Training: data, loop, metrics and configuration. gin supplies the model, so this package imports none."""

from __future__ import annotations

from meshtf.train.callback import Callback, Run
from meshtf.train.evaluation import Evaluation
from meshtf.train.initial_checkpoint import InitialCheckpoint
from meshtf.train.loop import TrainingRun
from meshtf.train.monitoring.progress import StepReport
from meshtf.train.runs.resuming import Start
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.task import Task
from meshtf.train.trainer import Trainer
from meshtf.train.training import Model, Training

__all__ = [
    "Callback",
    "Evaluation",
    "InitialCheckpoint",
    "Model",
    "Run",
    "RunFolder",
    "Start",
    "StepReport",
    "Task",
    "Trainer",
    "Training",
    "TrainingRun",
]
