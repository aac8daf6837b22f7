"""The engine: a thread that runs one step after the other on a trained model."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable

import numpy as np

from meshtf.errors import counted
from meshtf.serving.engine import (
    DRAINING,
    EngineClosedError,
    EngineFailedError,
    EngineLimits,
    EngineStatus,
    Finish,
    GenerationRequest,
    Listener,
    RequestError,
)
from meshtf.serving.engine_programs import EnginePrograms
from meshtf.serving.forms import Forms
from meshtf.serving.generation import Generation
from meshtf.serving.request_check import check_ids, check_request
from meshtf.serving.row_choice import RowChoice
from meshtf.serving.scheduler import End, Reads, Scheduler, step_arrays
from meshtf.serving.score_queue import Score, Scored, ScoreQueue
from meshtf.train.decoding.programs import SCORE

MOST_FAILURES = 5
"""The number of failed steps and scores in a row after which the engine has failed for good."""

_FAILED = "the step of the model failed: {error}"
_SCORE_FAILED = "the score of the model failed: {error}"
_FAILED_FOR_GOOD = "{count} of the model failed{in_a_row}: {error}"
_FAULT = "the engine's own code failed: {error}"
_CLOSED = "the engine has ended"
_LONGEST_CAUSE = 300
_LAST_SECONDS = 5.0
"""How long `close` waits for a running step after a failure, in seconds. Another process may hang in that step."""


class ModelEngine:
    """An `Engine` on a trained language model. Build it, and `start` it.

    Args:
      programs: the programs of the model, whose variables have their values.
    """

    def __init__(self, programs: EnginePrograms) -> None:
        self.programs, options = programs, programs.options
        self._scheduler = Scheduler(options, self.programs.num_pages)
        self._forms = Forms(programs.vocabulary, options.form_seconds)
        self._numbers = itertools.count(1)
        self._known: dict[int, Generation] = {}
        self._scores = ScoreQueue(options.queue_length)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_draining = self._is_closed = False
        self._num_failures = 0
        self._began: float | None = None  # the time at which the program that runs now began
        self._failure: str | None = None
        self._watchers: list[Callable[[str], None]] = []

    def start(self) -> None:
        """Makes the cache, compiles all programs, and starts the engine's thread."""
        self.programs.compile()
        self._thread = threading.Thread(target=self._run, name="meshtf-engine", daemon=True)
        self._thread.start()

    @property
    def limits(self) -> EngineLimits:
        return self.programs.limits

    def submit(self, request: GenerationRequest, listener: Listener) -> int:
        """Queues a generation, and returns its number. See `Engine.submit`."""
        check_request(request, self.limits)
        with self._changed:
            self._check_open()  # before a form is compiled in vain
            self._scheduler.queue.check_room(request.client)
        constraint = request.constraint
        form = None if constraint is None else self._forms.begin(constraint, request.stop_ids)
        starts = self.programs.starts_prompts or not request.prompt
        tokens = [*([self.programs.start_id] if starts else []), *request.prompt]
        with self._changed:
            self._check_open()
            choice = RowChoice.of(request, self.limits.vocab_size)
            one = Generation(next(self._numbers), request, listener, choice, tokens, len(tokens), form=form)
            self._scheduler.queue.add(request.client, one)
            self._known[one.number] = one
            self._changed.notify_all()
            return one.number

    def cancel(self, number: int) -> None:
        """Ends a generation early. Does nothing if it has ended."""
        with self._changed:
            if number in self._known:
                self._known[number].is_cancelled = True
                self._changed.notify_all()

    def score(self, ids: tuple[int, ...], client: str = "") -> Score:
        """Queues a sequence. The result is the log-likelihood of each of its tokens. See `Engine.score`."""
        check_ids(ids, self.limits.vocab_size, "the text")
        if len(ids) > self.limits.max_scored:
            raise RequestError(
                f"the text has {counted(len(ids), 'token')}, and may have {self.limits.max_scored} at most"
            )
        with self._changed:
            self._check_open()
            self._changed.notify_all()
            return self._scores.add(client, ids)

    def status(self) -> EngineStatus:
        with self._changed:
            began = self._began
            seconds = 0.0 if began is None else time.monotonic() - began
            return dataclasses.replace(self._scheduler.status(), step_seconds=seconds)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` with a message once the engine has failed for good. See `Engine.when_failed`."""
        with self._changed:
            self._watchers.append(tell)
            failure = self._failure
        if failure is not None:
            tell(failure)

    def drain(self, seconds: float) -> bool:
        """Takes no more requests, and waits until all have ended. See `Engine.drain`."""
        with self._changed:
            self._is_draining = True
            is_done = self._changed.wait_for(lambda: not self._known and not self._scores, max(0.0, seconds))
            for one in self._known.values():
                one.is_cancelled = True
            self._scores.fail(EngineClosedError(_CLOSED))
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._known or self._thread is None)
            return is_done

    def close(self) -> None:
        """Cancels everything, and ends the engine's thread. After a failure it does not wait for a step that hangs."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(None if self._failure is None else _LAST_SECONDS)
        self._thread = None

    def _check_open(self) -> None:
        if self._failure is not None:
            raise EngineClosedError(self._failure)
        if self._is_draining or self._is_closed:
            raise EngineClosedError(DRAINING)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # a panic of a library in Rust, such as the one for forms, is no Exception
            self.fail(_FAULT.format(error=cause_of(error)))

    def _turn(self) -> bool:
        """Waits for work, and does one step. Returns False when the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._scheduler.has_work or len(self._scores) > 0 or self._is_closed)
            if self._is_closed:
                self._end_all()
                return False
            # At most one batch of scores runs between two steps, so that streams do not wait for more.
            scored = self._scores.take(self.programs.num_scores)
            self._tell(self._scheduler.ended_early())
            self._scheduler.admit()
            reads = self._scheduler.reads()
        if scored:
            self._score(scored)
        if reads and self._failure is None:
            self._step(reads)
        return True

    def _step(self, reads: Reads) -> None:
        name = self.programs.step_for(reads)
        try:
            results = self._ran(name, step_arrays(reads, self.programs.steps[name]))
        except Exception as error:
            self._fail(reads, error)
            return
        with self._changed:
            self._num_failures = 0
            self._tell(self._scheduler.done(reads, results))

    def _score(self, scored: list[Scored]) -> None:
        texts = [ids for ids, _ in scored]
        try:
            found = self.programs.scores_in(self._ran(SCORE, self.programs.score_arrays(texts)), texts)
        except Exception as error:
            for _, score in scored:
                score.set_exception(EngineFailedError(_SCORE_FAILED.format(error=cause_of(error))))
            self._count_failure(error)
            return
        self._num_failures = 0
        for (_, score), values in zip(scored, found, strict=True):
            score.set_result(values)
        with self._changed:
            self._changed.notify_all()

    def _ran(self, name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self._began = time.monotonic()
        try:
            return self.programs.run(name, arrays)
        finally:
            self._began = None

    def _fail(self, reads: Reads, error: Exception) -> None:
        """Continues with an empty cache after a step that failed."""
        with self._changed:
            for one in self._scheduler.failed(reads):
                del self._known[one.number]
                _call(one.listener.failed, EngineFailedError(_FAILED.format(error=cause_of(error))))
        self._count_failure(error)

    def _count_failure(self, error: Exception) -> None:
        self._num_failures += 1
        # With several processes one failure is final. The others may not have failed, and would wait for another step.
        if self._num_failures >= MOST_FAILURES or self.programs.is_shared:
            count, in_a_row = counted(self._num_failures, "step"), " in a row" if self._num_failures > 1 else ""
            self.fail(_FAILED_FOR_GOOD.format(count=count, in_a_row=in_a_row, error=cause_of(error)))

    def fail(self, message: str) -> None:
        """Ends the engine for good, and sends the message to all that wait for it. Any thread may call it."""
        with self._changed:
            if self._failure is not None:
                return
            self._failure, self._is_closed = message, True
            for one in self._known.values():
                _call(one.listener.failed, EngineFailedError(message))
            self._known.clear()
            self._scores.fail(EngineFailedError(message))
            watchers = list(self._watchers)
            self._changed.notify_all()
        for tell in watchers:
            _call(tell, message)

    def _end_all(self) -> None:
        for one in self._known.values():
            one.is_cancelled = True
        self._tell([each for each in self._scheduler.ended_early() if each[0].number in self._known])
        self._scores.fail(EngineClosedError(_CLOSED))

    def _tell(self, ended: list[tuple[Generation, End]]) -> None:
        for one, reason in ended:
            del self._known[one.number]
            if isinstance(reason, Finish):
                _call(one.listener.finished, reason)
            else:
                _call(one.listener.failed, reason)
        self._changed.notify_all()


def cause_of(error: BaseException) -> str:
    """Returns the first line of an error's message, shortened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= _LONGEST_CAUSE else f"{lines[0][:_LONGEST_CAUSE]} .."


def _call(fn: Callable[..., None], *arguments: object) -> None:
    """Calls a listener, and ignores its errors."""
    with contextlib.suppress(Exception):
        fn(*arguments)
