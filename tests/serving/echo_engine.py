"""An engine without a model: each new token is the one before plus one. Its faults and delays are asked for."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator

from meshtf.serving.engine import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    EngineLimits,
    EngineStatus,
    Finish,
    GeneratedToken,
    GenerationRequest,
    Listener,
    RequestError,
)

FIRST_BYTE = 2
FAULT, REFUSED, SLOW, FIRST = (ord(letter) + FIRST_BYTE for letter in "!#~^")


class EchoEngine:
    """Continues "ab" as "cdef". A prompt that ends in "!" fails after a token, by its form if it has one. One in "#" is
    refused.

    Attributes:
      limits: the sizes that requests must keep.
      script: ids that are drawn in place of the counting.
      delay: the seconds between two tokens.
      most: the most generations at once.
      requests: what was submitted.
      cancelled: the numbers that were cancelled before their end.
      is_draining: whether it takes no more requests.
      step_seconds: how long its present step has run.
      may_compile: whether a request with a form is taken at once; one that comes before waits for it.
      scores: the scores that were asked for. They never come for a text that ends in "~". Nothing predicts a "^".
      clients_of_scores: who asked for each.
    """

    def __init__(
        self, script: tuple[int, ...] = (), delay: float = 0.0, most: int = 1000, form_seconds: float = 60.0
    ) -> None:
        self.limits = EngineLimits(64, 64, vocab_size=258, max_likeliest=5, form_seconds=form_seconds)
        self.script, self.delay, self.most = script, delay, most
        self.requests: list[GenerationRequest] = []
        self.cancelled: list[int] = []
        self._running: dict[int, threading.Event] = {}
        self.may_compile = threading.Event()
        self.may_compile.set()
        self.scores: list[concurrent.futures.Future[list[float | None]]] = []
        self.clients_of_scores: list[str] = []
        self.is_draining, self.step_seconds = False, 0.0
        self._failure: str | None = None
        self._watchers: list[Callable[[str], None]] = []

    def fail(self, message: str) -> None:
        """Fails for good."""
        self._failure = message
        for tell in self._watchers:
            tell(message)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        self._watchers.append(tell)

    def submit(self, request: GenerationRequest, listener: Listener) -> int:
        if request.prompt[-1:] == (REFUSED,):
            raise RequestError("the prompt ends in #")
        if request.constraint is not None:
            self.may_compile.wait()
        if self.is_draining or self._failure is not None:
            raise EngineClosedError(self._failure or "the engine takes no more requests")
        if len(self._running) >= self.most:
            raise EngineBusyError("the queue is full")
        number = len(self.requests)
        self.requests.append(request)
        cancel = self._running[number] = threading.Event()
        threading.Thread(target=self._run, args=(number, request, listener, cancel), daemon=True).start()
        return number

    def _run(self, number: int, request: GenerationRequest, listener: Listener, cancel: threading.Event) -> None:
        ids, reason = self._ids(request), Finish.LENGTH
        end = time.monotonic() + (request.deadline_seconds or 1e9)
        for count in range(request.max_new_tokens):
            if cancel.wait(self.delay) if self.delay else cancel.is_set():
                reason = Finish.CANCELLED
                break
            if time.monotonic() > end:
                reason = Finish.TIMED_OUT
                break
            if count and request.constraint is not None and request.prompt[-1:] == (FAULT,):
                del self._running[number]
                return listener.failed(RequestError("cannot go on", "constraint"))
            if count and request.prompt[-1:] == (FAULT,):
                del self._running[number]
                return listener.failed(EngineFailedError("the prompt ends in !"))
            token = next(ids)
            listener.token(self._told(token, request))
            if token in request.stop_ids:
                reason = Finish.STOP
                break
        del self._running[number]
        return listener.finished(reason)

    def _told(self, token: int, request: GenerationRequest) -> GeneratedToken:
        if request.num_likeliest is None:
            return GeneratedToken(token)
        return GeneratedToken(token, -0.5, tuple((token + i, -0.5 - i) for i in range(request.num_likeliest)))

    def _ids(self, request: GenerationRequest) -> Iterator[int]:
        last = request.prompt[-1] if request.prompt else FIRST_BYTE + ord("a") - 1
        yield from self.script
        while True:
            last += 1
            yield last

    def cancel(self, number: int) -> None:
        if number in self._running:
            self.cancelled.append(number)
            self._running[number].set()

    def score(self, ids: tuple[int, ...], client: str = "") -> concurrent.futures.Future[list[float | None]]:
        if self.is_draining:
            raise EngineClosedError("the engine takes no more requests")
        if len(self.scores) >= self.most:
            raise EngineBusyError("the queue is full")
        found: concurrent.futures.Future[list[float | None]] = concurrent.futures.Future()
        self.scores.append(found)
        self.clients_of_scores.append(client)
        if ids[-1:] == (REFUSED,):
            found.set_exception(EngineFailedError("the text ends in #"))
        elif ids[-1:] != (SLOW,):
            odd = {FAULT: float("-inf"), FIRST: None}
            found.set_result([odd.get(each, -float(i + 1)) for i, each in enumerate(ids)])
        return found

    def status(self) -> EngineStatus:
        return EngineStatus(len(self._running), num_pages=8, num_free_pages=7, step_seconds=self.step_seconds)

    def drain(self, seconds: float) -> bool:
        self.is_draining = True
        end = time.monotonic() + seconds
        while self._running and time.monotonic() < end:
            time.sleep(0.01)
        is_whole = not self._running
        for number in list(self._running):
            self.cancel(number)
        return is_whole

    def close(self) -> None:
        self.is_draining = True
