"""Delivers events to callbacks. It handles callbacks that fail, and keeps their states for checkpoints."""

from __future__ import annotations

import collections
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.checkpoint.manifest import checked_state
from meshtf.errors import CollectiveError, MeshtfError
from meshtf.train.callback import Callback, CallbackError, Outcome, Run
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.progress import StepReport

_FAILED = "callback {name} failed in {event} after step {step}: {error}{place}"
_GOES_ON = "{failure}\nTraining continues without it."

_STATES, _EVALUATED_STEP = "states", "evaluated_step"


class Delivery:
    """Delivers the events of one run to its callbacks, in their order.

    Every callback gets an event, even if an earlier one fails. Then the first failure is raised. An observer that fails
    is left out from then on.
    """

    def __init__(self, callbacks: Sequence[Callback], run: Run) -> None:
        self._run = run
        self._evaluated_step = -1
        self._states: dict[str, Any] = {}
        self._started: set[str] = set()
        self._callbacks = _by_name(callbacks)
        self._asking = {
            event: [name for name, callback in self._callbacks.items() if _asks_for(callback, event)]
            for event in ("on_step", "on_evaluation", "on_checkpoint", "on_end")
        }

    def start(self, states: Mapping[str, Any] | None) -> None:
        """Passes the states of a checkpoint to the callbacks, with the first event.

        Raises:
          CallbackError: if one of them failed, or has a state that JSON cannot hold.
        """
        self._evaluated_step = (states or {}).get(_EVALUATED_STEP, -1)
        self._states = dict((states or {}).get(_STATES, {}))

        def start_one(name: str, callback: Callback) -> None:
            callback.on_start(self._run, self._states.get(name, {}))
            self._started.add(name)

        self._deliver("on_start", list(self._callbacks), start_one)
        self.state_dict()

    def step(self, report: StepReport) -> None:
        if self._asking["on_step"]:
            self._tell("on_step", report)

    def needs_evaluation(self, step: int) -> bool:
        """Tells whether callbacks other than observers want evaluations, and have not had this step's."""
        return bool(self._deciding) and self._evaluated_step < step

    def evaluation(self, evaluation: Evaluation, *, is_written: bool) -> None:
        """Delivers the evaluation of this step.

        `is_written`: whether its metrics were written earlier, perhaps by an earlier run. Observers received it
        then.
        """
        if self._evaluated_step < self._run.step:
            self._evaluated_step = self._run.step
            names = self._deciding if is_written else self._asking["on_evaluation"]
            self._deliver("on_evaluation", names, lambda _, callback: callback.on_evaluation(self._run, evaluation))

    def checkpoint(self, path: Path) -> None:
        self._tell("on_checkpoint", path)

    def end(self, outcome: Outcome) -> None:
        """Delivers the end to the callbacks that have started."""
        self._asking["on_end"] = [name for name in self._asking["on_end"] if name in self._started]
        self._tell("on_end", outcome)

    def state_dict(self) -> dict[str, Any] | None:
        """Returns the states of all callbacks that have one, for a checkpoint, or None if there is nothing to store.

        Raises:
          CallbackError: if a callback fails to give its state, or JSON cannot hold it.
        """

        def take(name: str, callback: Callback) -> None:
            self._states[name] = checked_state(callback.state_dict())

        self._deliver("state_dict", list(self._callbacks), take)
        # A callback that was left out keeps its last state, since a later run may have the callback again.
        states = {name: state for name, state in self._states.items() if state}
        if not states and not self._deciding:
            return None
        return {_STATES: states, _EVALUATED_STEP: self._evaluated_step}

    @property
    def _deciding(self) -> list[str]:
        return [name for name in self._asking["on_evaluation"] if not self._callbacks[name].is_observer]

    def _tell(self, event: str, *values: Any) -> None:
        self._deliver(event, self._asking[event], lambda _, callback: getattr(callback, event)(self._run, *values))

    def _deliver(self, event: str, names: Sequence[str], give: Callable[[str, Callback], object]) -> None:
        first: CallbackError | None = None
        for name in [name for name in names if name in self._callbacks]:
            callback = self._callbacks[name]
            try:
                give(name, callback)
            except CollectiveError as error:
                raise CollectiveError(f"callback {callback.name} in {event}: {error}") from None
            except Exception as error:
                failure = _failure(callback, event, self._run.step, error)
                if callback.is_observer:
                    self._leave_out(name, failure)
                elif first is None:
                    first = failure
        if first is not None:
            raise first

    def _leave_out(self, name: str, failure: CallbackError) -> None:
        del self._callbacks[name]
        for asking in self._asking.values():
            if name in asking:
                asking.remove(name)
        print(_GOES_ON.format(failure=failure), flush=True)


def _by_name(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Returns the callbacks by the names under which their states are kept. Several of a kind get numbers."""
    counts: collections.Counter[str] = collections.Counter()
    named: dict[str, Callback] = {}
    for callback in callbacks:
        counts[callback.name] += 1
        number = counts[callback.name]
        named[callback.name if number == 1 else f"{callback.name}/{number}"] = callback
    return named


def _asks_for(callback: Callback, event: str) -> bool:
    return getattr(type(callback), event) is not getattr(Callback, event)


def _failure(callback: Callback, event: str, step: int, error: Exception) -> CallbackError:
    kind = "" if isinstance(error, MeshtfError) else f"{type(error).__name__}: "
    text = _FAILED.format(
        name=callback.name, event=event, step=step, error=f"{kind}{error}".strip(": "), place=_place(callback, error)
    )
    failure = CallbackError(text)
    failure.__cause__ = error
    return failure


def _place(callback: Callback, error: Exception) -> str:
    """Returns the innermost line in the callback's own file."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(sys.modules.get(type(callback).__module__), "__file__", None)
    lines = [frame for frame in frames if frame.filename == file] or frames[1:]  # the first is in this file
    return f"\n  at {lines[-1].filename}:{lines[-1].lineno} in {lines[-1].name}" if lines else ""
