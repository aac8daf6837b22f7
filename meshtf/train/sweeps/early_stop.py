"""Finds hopeless trials, by the rules of the library optuna."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from meshtf.train.configuration import ConfigurationError
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_folder import ENDED, STOPPED_EARLY

if TYPE_CHECKING:
    import optuna

_NO_OPTUNA = """\
Sweep.stop_early = "{rule}" needs optuna (pip install 'meshtf[sweep]')"""

Curve = tuple[Sequence[int], Sequence[float]]


class EarlyStop:
    """Judges trials by their values so far, in comparison with the others'.

    It creates no trials. It passes the values of each to optuna, and calls its pruner.

    Raises:
      ConfigurationError: if optuna is needed and not installed.
    """

    def __init__(self, sweep: Sweep) -> None:
        try:
            import optuna
        except ImportError:
            raise ConfigurationError(_NO_OPTUNA.format(rule=sweep.stop_early)) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if sweep.stop_early == "median":
            pruner: Any = optuna.pruners.MedianPruner(
                n_startup_trials=sweep.start_up_trials, n_warmup_steps=sweep.warm_up_steps
            )
        else:
            pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=max(1, sweep.warm_up_steps))
        direction = "minimize" if sweep.mode == "min" else "maximize"
        self._study = optuna.create_study(direction=direction, pruner=pruner)
        self._state = optuna.trial.TrialState

    def begin(self) -> JudgedTrial:
        """Returns a trial that has no values yet."""
        return JudgedTrial(self._study, self._study.ask())

    def add(self, curve: Curve, state: str) -> None:
        """Adds a trial that ended before, in another process.

        Args:
          curve: its steps and values.
          state: how it ended.
        """
        trial = self.begin()
        trial.is_hopeless(curve)  # others are judged by its values; how it ended is known
        trial.end(state)


class JudgedTrial:
    """A running trial, as the rules see it."""

    def __init__(self, study: optuna.Study, trial: optuna.Trial) -> None:
        self._study, self._trial = study, trial
        self._last, self._value = -1, None
        self._is_hopeless = False

    def is_hopeless(self, curve: Curve) -> bool:
        """Adds the values of new steps, and tells whether the trial should end."""
        for step, value in zip(*curve, strict=True):
            if step > self._last:
                self._trial.report(value, step)
                self._last, self._value = step, value
                self._is_hopeless = self._trial.should_prune() or self._is_hopeless
        return self._is_hopeless

    def end(self, state: str) -> None:
        """Notes how the trial has ended. Only trials that ran to their end count as finished."""
        import optuna

        states = optuna.trial.TrialState
        if state == STOPPED_EARLY and self._value is not None:
            self._study.tell(self._trial, state=states.PRUNED)
        elif state in ENDED and self._value is not None:
            self._study.tell(self._trial, self._value)
        else:
            self._study.tell(self._trial, state=states.FAIL)
