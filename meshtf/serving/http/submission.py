"""Submits requests to an engine without blocking the event loop while their forms are compiled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
import time

from meshtf.serving.engine import DRAINING, Engine, EngineClosedError, GenerationRequest, Listener
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.response_format import FIELD

_NUM_THREADS = 2
_OTHERS = "The server is busy compiling the forms of other requests; try again later."
_TOO_LONG = "{field} takes longer than {seconds:g} s to compile; ask for a smaller form."


class Submission:
    """Submits requests to an engine. Requests with a form go through threads, which compile new forms.

    The threads are daemons, so the process does not wait for a compilation when it ends.

    Args:
      engine: the engine, whose limits say how long a request may wait for its form.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._seconds = engine, engine.limits.form_seconds
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()  # None ends a thread
        self._num_threads, self._is_closed = 0, False

    async def submit(self, request: GenerationRequest, listener: Listener) -> int:
        """Queues a generation, and returns its number. If the caller stops waiting, the generation is cancelled.

        Raises:
          ApiError: if the form takes too long. Errors of `Engine.submit` are raised as they are.
        """
        if request.constraint is None:
            return self._engine.submit(request, listener)
        number, work = None, _Work(self._engine, request, listener)
        self._add(work)
        try:
            async with asyncio.timeout(self._seconds):
                number = await asyncio.wrap_future(work.number)
            return number
        except TimeoutError:
            raise self._late(work) from None
        finally:
            if number is None:
                work.number.add_done_callback(self._give_up)

    def _add(self, work: _Work) -> None:
        if self._is_closed:
            raise EngineClosedError(DRAINING)
        self._waiting.put(work)
        if self._num_threads < _NUM_THREADS:
            self._num_threads += 1
            threading.Thread(target=self._work, name=f"meshtf-forms-{self._num_threads}", daemon=True).start()

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            work.run()

    def _late(self, work: _Work) -> ApiError:
        """The error for a request that waited too long, either for its own form or behind the forms of others."""
        if work.began is not None and time.monotonic() - work.began > self._seconds / 2:
            return ApiError(_TOO_LONG.format(field=FIELD, seconds=self._seconds), param=FIELD)
        return ApiError(_OTHERS, 503, FIELD, "overloaded", retry_after=1)

    def _give_up(self, number: concurrent.futures.Future[int]) -> None:
        if not number.cancelled() and number.exception() is None:
            self._engine.cancel(number.result())

    def close(self) -> None:
        """Refuses the waiting requests. Compilations that have begun continue, but the closed engine then refuses their
        requests.
        """
        self._is_closed = True
        with contextlib.suppress(queue.Empty):
            while (work := self._waiting.get_nowait()) is not None:
                work.refuse()
        for _ in range(self._num_threads):
            self._waiting.put(None)


class _Work:
    """A request that a thread submits.

    Attributes:
      number: a future of the number of its generation.
      began: the time at which a thread took it. None while it waits.
    """

    def __init__(self, engine: Engine, request: GenerationRequest, listener: Listener) -> None:
        self._engine, self._request, self._listener = engine, request, listener
        self.number: concurrent.futures.Future[int] = concurrent.futures.Future()
        self.began: float | None = None

    def run(self) -> None:
        if not self.number.set_running_or_notify_cancel():
            return
        self.began = time.monotonic()
        try:
            self.number.set_result(self._engine.submit(self._request, self._listener))
        except BaseException as error:
            self.number.set_exception(error)

    def refuse(self) -> None:
        if self.number.set_running_or_notify_cancel():
            self.number.set_exception(EngineClosedError(DRAINING))
