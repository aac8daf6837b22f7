"""The folder of a sweep: its plan, how its trials ended, and a run folder for each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.metrics import DIGEST, read_metrics
from meshtf.train.sweeps.trials import Trial
from meshtf_programs.strict_json import json_text

DONE, STOPPED_EARLY, NOT_FINITE, FAILED, WAITING = "done", "stopped early", "not finite", "failed", "waiting"

ENDED = (DONE, STOPPED_EARLY, NOT_FINITE)
"""The states of trials that are not run again."""

_OTHER_BASE = """\
{folder} holds a sweep of another training:
  then: {then}
  now:  {now}
Their trials could not be compared. Give the same --gin_file and --gin_param, or another --sweep_dir."""

_NO_PLAN = """\
{path} is not a plan that meshtf-sweep wrote: {why}. Remove it, or give another --sweep_dir."""


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The files of a sweep. `path` is the folder, which must be there."""

    path: Path

    @property
    def plan(self) -> Path:
        """The file of the trials and of how they ended."""
        return self.path / "sweep.json"

    def trial(self, trial: Trial) -> Path:
        """Returns the run folder of a trial."""
        return self.path / trial.name

    def log(self, trial: Trial) -> Path:
        """Returns the file with the output of a trial."""
        return self.path / f"{trial.name}.log"

    def lines(self, trial: Trial) -> list[dict[str, Any]]:
        """Returns the metrics of a trial so far."""
        return read_metrics(self.trial(trial) / "metrics.jsonl")

    def read_plan(self, base: Sequence[str]) -> tuple[list[Trial], dict[int, str]]:
        """Returns the trials of earlier commands, and how they ended, by number.

        Raises:
          ConfigurationError: if they are of another base, or if the file cannot be read as a plan.
        """
        if not self.plan.exists():
            return [], {}
        try:
            found = json.loads(self.plan.read_text())
            trials = [Trial(int(each["number"]), dict(each["values"])) for each in found["trials"]]
            states = {int(each["number"]): str(each["state"]) for each in found["trials"]}
            then = list(found["base"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(_NO_PLAN.format(path=self.plan, why=repr(error))) from None
        if then != list(base):
            raise ConfigurationError(_OTHER_BASE.format(folder=self.path, then=" ".join(then), now=" ".join(base)))
        return trials, states

    def write_plan(self, base: Sequence[str], trials: Sequence[Trial], states: Mapping[int, str]) -> None:
        """Writes the plan whole, as it is now."""
        rows = [{"number": t.number, "state": states.get(t.number, WAITING), "values": dict(t.values)} for t in trials]
        replace_file(self.plan, (json_text({"base": list(base), "trials": rows}, indent=1) + "\n").encode())

    def state(self, trial: Trial, noted: str) -> str:
        """Returns the state of a trial. A run of another command may have finished it since it was noted."""
        if noted in ENDED:
            return noted
        return DONE if any(DIGEST in line for line in self.lines(trial)) else noted
