"""Notices that a client disconnects before its reply is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from meshtf.serving.http.api_error import ApiError

T = TypeVar("T")


async def left(receive: Receive) -> None:
    """Returns when the client disconnects. The body of its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_left(receive: Receive, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Returns the result of `work`. If the client disconnects, the work is cancelled.

    Raises:
      ApiError: if the client disconnected, or the work took longer than `seconds`.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(left(receive))
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            raise ApiError("The client left before the reply was ready.")
        raise ApiError(f"The reply was not ready within {seconds:g} s; send less at once.", 503, retry_after=1)
    finally:
        task.cancel()
        gone.cancel()
