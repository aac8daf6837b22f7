"""Runs the trials of a sweep, some at a time, each in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.metrics import OWN_NAMES, curve_of
from meshtf.train.runs.signals import StopRequest
from meshtf.train.sweeps.early_stop import EarlyStop, JudgedTrial
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_folder import DONE, ENDED, FAILED, NOT_FINITE, STOPPED_EARLY, WAITING, SweepFolder
from meshtf.train.sweeps.trials import Trial
from meshtf_programs.exit_status import ExitStatus

POLL_SECONDS = 0.5

_NO_METRIC = """\
no line of {path} has the metric "{metric}", which Sweep.metric names{hint}
It has: {names}."""


@dataclasses.dataclass
class _Running:
    """A running trial. `asked`: whether it was asked to stop because it is hopeless."""

    trial: Trial
    process: subprocess.Popen[bytes]
    judged: JudgedTrial | None
    asked: bool = False
    passed_on: bool = False

    def ask_to_stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)


class SweepRun:
    """Runs trials until all have ended, or a signal asks it to stop. Then running trials write a checkpoint.

    Args:
      sweep: how trials are judged.
      folder: where they are.
      states: the states of ended trials, by number. This object updates it.
      command: returns the command of a trial.
      save: writes the states down. It is called after each change.
    """

    def __init__(
        self,
        sweep: Sweep,
        folder: SweepFolder,
        *,
        states: dict[int, str],
        command: Callable[[Trial], Sequence[str]],
        save: Callable[[], None],
    ) -> None:
        self.sweep, self.folder, self.states = sweep, folder, states
        self._command, self._save = command, save
        self._early_stop = None if sweep.stop_early is None else EarlyStop(sweep)
        self._running: list[_Running] = []

    def run(self, trials: Sequence[Trial], jobs: int, stop: StopRequest) -> None:
        """Runs the trials that have not ended, at most `jobs` at a time.

        Raises:
          ConfigurationError: if a finished trial has no value of the metric.
        """
        waiting = deque(trial for trial in trials if self.states.get(trial.number) not in ENDED)
        for trial in trials:
            state = self.states.get(trial.number, WAITING)
            if self._early_stop is not None and state in ENDED:
                self._early_stop.add(curve_of(self.folder.lines(trial), self.sweep.metric), state)
        try:
            while self._running or (waiting and not stop):
                while waiting and len(self._running) < jobs and not stop:
                    self._start(waiting.popleft())
                time.sleep(POLL_SECONDS)
                for running in list(self._running):
                    self._look_at(running, stop)
        finally:
            for running in self._running:  # after an error
                running.ask_to_stop()
            for running in self._running:
                running.process.wait()

    def _start(self, trial: Trial) -> None:
        with self.folder.log(trial).open("ab") as log:
            process = subprocess.Popen(
                list(self._command(trial)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        judged = None if self._early_stop is None else self._early_stop.begin()
        self._running.append(_Running(trial, process, judged))
        print(f"{trial.name}: begins: {'; '.join(trial.bindings)}", flush=True)

    def _look_at(self, running: _Running, stop: StopRequest) -> None:
        status = running.process.poll()
        curve = curve_of(self.folder.lines(running.trial), self.sweep.metric)
        if running.judged is not None and not running.asked and running.judged.is_hopeless(curve) and status is None:
            running.asked = True
            running.ask_to_stop()
        if stop and not running.passed_on and status is None:
            running.passed_on = True
            running.ask_to_stop()
        if status is not None:
            self._running.remove(running)
            self._end(running, status)

    def _end(self, running: _Running, status: int) -> None:
        trial = running.trial
        state = _state(running, status)
        if state == DONE:
            self._check_metric(trial)
        if running.judged is not None:
            running.judged.end(state)
        self.states[trial.number] = state
        self._save()
        print(f"{trial.name}: {state}{self._explained(trial, state, status)}", flush=True)

    def _explained(self, trial: Trial, state: str, status: int) -> str:
        if state != FAILED:
            return ""
        text = self.folder.log(trial).read_text(errors="replace").strip().splitlines()
        errors = [line for line in text if "error: " in line] or text
        told = errors[-1].strip() if errors else "it printed nothing"
        return f" with status {status}: {told}\n  all of it is in {self.folder.log(trial)}"

    def _check_metric(self, trial: Trial) -> None:
        lines = self.folder.lines(trial)
        if curve_of(lines, self.sweep.metric)[0]:
            return
        numbers = {n: None for line in lines for n, x in line.items() if isinstance(x, int | float)}
        names = [name for name in numbers if name not in OWN_NAMES]
        path, metric = self.folder.trial(trial) / "metrics.jsonl", self.sweep.metric
        hint = nearest(metric, names)
        raise ConfigurationError(_NO_METRIC.format(path=path, metric=metric, hint=hint, names=", ".join(names)))


def _state(running: _Running, status: int) -> str:
    if status == ExitStatus.DONE:
        return DONE
    if status == ExitStatus.NOT_FINITE:
        return NOT_FINITE
    if status in (ExitStatus.of_signal(signal.SIGTERM), -signal.SIGTERM):
        return STOPPED_EARLY if running.asked else WAITING
    return FAILED
