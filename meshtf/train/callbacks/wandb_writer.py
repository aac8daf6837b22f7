"""Writes metrics for Weights & Biases, if it is installed."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Mapping
from typing import Any

import gin

from meshtf.errors import nearest
from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.callbacks._arguments import check_text
from meshtf.train.callbacks._run_facts import configuration_of
from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.metrics import held_out_names
from meshtf.train.monitoring.progress import StepReport
from meshtf.train.trainer import Trainer

MISSING_WANDB = "WandbWriter needs Weights & Biases, which is not installed: pip install 'meshtf[wandb]'"

_MODES = ("online", "offline", "disabled")


@gin.configurable(module="meshtf.train")
class WandbWriter(Callback):
    """Writes metrics and configuration to a run of Weights & Biases, which a resumed training continues.

    Its files are in the run's folder, under `wandb/`. In mode "offline" they are sent later by `wandb sync`.

    Args:
      project: the project that the run belongs to.
      run_name: the name of the run. The default is the name of its folder.
      mode: "online", "offline" or "disabled".

    Raises:
      ConfigurationError: if a value is impossible.
    """

    is_observer = True

    def __init__(self, project: str = "meshtf", run_name: str | None = None, mode: str = "online") -> None:
        check_text("WandbWriter.project", project)
        check_text("WandbWriter.run_name", run_name, may_be_none=True)
        if mode not in _MODES:
            raise ConfigurationError(
                f"WandbWriter.mode must be one of {', '.join(_MODES)}, and is {mode!r}{nearest(str(mode), _MODES)}"
            )
        self._project, self._run_name, self._mode = project, run_name, mode
        self._run: Any = None

    def check(self, trainer: Trainer) -> None:
        if importlib.util.find_spec("wandb") is None:
            raise ConfigurationError(MISSING_WANDB)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        import wandb  # an optional dependency

        self._id: str = state.get("id", uuid.uuid4().hex[:16])
        self._run = wandb.init(
            project=self._project,
            name=self._run_name or run.folder.path.absolute().name,
            id=self._id,
            resume="allow",
            mode=self._mode,
            dir=str(run.folder.path.absolute()),
            config=configuration_of(run),
            settings=wandb.Settings(silent=True),
        )

    def on_step(self, run: Run, report: StepReport) -> None:
        if report.is_logged:
            self._run.log(dict(report.values), step=report.step)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self._run.log(held_out_names(evaluation.means), step=run.step)

    def on_end(self, run: Run, outcome: Outcome) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(outcome is Outcome.FAILED))
            self._run = None

    def state_dict(self) -> dict[str, Any]:
        return {"id": self._id}
