"""Gives requests to an engine without stopping the event loop, however long their forms take to compile."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time

from meshtf.serving.engine import Engine, GenerationRequest, Listener
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.response_format import FIELD

_NUM_THREADS = 2
_OTHERS = "The server compiles the forms of other requests; come again later."
_TOO_LONG = "{field} takes longer than {seconds:g} s to compile; ask for a smaller form."


class Submission:
    """The way of requests to an engine. The ones with a form go by threads, where it is compiled if it is new.

    Args:
      engine: the engine.
      seconds: how long a request may wait for its form.
    """

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self._threads = concurrent.futures.ThreadPoolExecutor(_NUM_THREADS, "meshtf-forms")

    async def submit(self, request: GenerationRequest, listener: Listener) -> int:
        """Queues a generation, and returns its number. If nobody waits for it any more, it is cancelled.

        Raises:
          ApiError: if the form takes too long. Errors of `Engine.submit` are raised as they are.
        """
        if request.constraint is None:
            return self._engine.submit(request, listener)
        begun = list[float]()

        def work() -> int:
            begun.append(time.monotonic())
            return self._engine.submit(request, listener)

        number, running = None, self._threads.submit(work)
        try:
            async with asyncio.timeout(self._seconds):
                number = await asyncio.wrap_future(running)
            return number
        except TimeoutError:
            raise self._late(begun) from None
        finally:
            if number is None:
                running.add_done_callback(self._give_up)

    def _late(self, begun: list[float]) -> ApiError:
        """The reply to a request that waited too long, mostly for its own form or for others'."""
        if begun and time.monotonic() - begun[0] > self._seconds / 2:
            return ApiError(_TOO_LONG.format(field=FIELD, seconds=self._seconds), param=FIELD)
        return ApiError(_OTHERS, 503, FIELD, "overloaded", retry_after=1)

    def _give_up(self, running: concurrent.futures.Future[int]) -> None:
        if not running.cancelled() and running.exception() is None:
            self._engine.cancel(running.result())

    def close(self) -> None:
        """Compiles no more forms, but for the ones that are being compiled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
