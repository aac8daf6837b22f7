"""Writes metrics for MLflow, if it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import gin

from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.callbacks._arguments import check_text
from meshtf.train.callbacks._run_facts import configuration_of
from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.metrics import held_out_names
from meshtf.train.monitoring.progress import StepReport
from meshtf.train.trainer import Trainer

MISSING_MLFLOW = "MlflowWriter needs MLflow, which is not installed: pip install 'meshtf[mlflow]'"

_LONGEST_PARAMETER = 500
"""The most characters of a parameter. Servers of MLflow refuse longer ones."""


@gin.configurable(module="meshtf.train")
class MlflowWriter(Callback):
    """Writes metrics and configuration to a run of MLflow, which a resumed training continues.

    Args:
      tracking_uri: the address of the server or of the files, such as "http://host:5000". None: MLflow's own
        default.
      experiment: the experiment that the run belongs to.
      run_name: the name of the run. The default is the name of its folder.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    is_observer = True

    def __init__(
        self, tracking_uri: str | None = None, experiment: str = "meshtf", run_name: str | None = None
    ) -> None:
        check_text("MlflowWriter.tracking_uri", tracking_uri, may_be_none=True)
        check_text("MlflowWriter.experiment", experiment)
        check_text("MlflowWriter.run_name", run_name, may_be_none=True)
        self._tracking_uri, self._experiment, self._run_name = tracking_uri, experiment, run_name
        self._client: Any = None

    def check(self, trainer: Trainer) -> None:
        if importlib.util.find_spec("mlflow") is None:
            raise ConfigurationError(MISSING_MLFLOW)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient  # an optional dependency

        self._client = MlflowClient(self._tracking_uri)
        self._id: str | None = state.get("id")
        if self._id is None:
            name = self._run_name or run.folder.path.absolute().name
            self._id = self._client.create_run(self._experiment_id(), run_name=name).info.run_id
            for parameter, value in configuration_of(run).items():
                self._client.log_param(self._id, _fit_for_mlflow(parameter), value[:_LONGEST_PARAMETER])
        else:
            self._client.update_run(self._id, status="RUNNING")

    def on_step(self, run: Run, report: StepReport) -> None:
        if report.is_logged:
            self._log(report.step, report.values)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self._log(run.step, held_out_names(evaluation.means))

    def on_end(self, run: Run, outcome: Outcome) -> None:
        if self._client is not None:
            statuses = {Outcome.FAILED: "FAILED", Outcome.INTERRUPTED: "KILLED"}
            self._client.set_terminated(self._id, statuses.get(outcome, "FINISHED"))

    def state_dict(self) -> dict[str, Any]:
        return {"id": self._id}

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        return self._client.create_experiment(self._experiment) if found is None else found.experiment_id

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, _fit_for_mlflow(name), value, step=step)


def _fit_for_mlflow(name: str) -> str:
    """Returns a name with only the characters that MLflow allows."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)
