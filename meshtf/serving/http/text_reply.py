"""Answers one request for text: all at once, or as a stream of events."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.generation import Generation, Piece, likelihoods
from meshtf.serving.http.json_response import JsonResponse
from meshtf.serving.http.leaving import left
from meshtf.serving.http.replies import FULL, Echo, Replies
from meshtf.serving.http.server_metrics import ServerMetrics
from meshtf.serving.http.submission import Submission
from meshtf_programs.strict_json import json_text

_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class TextReply(Response):
    """The reply to a request for text. Its generations end when the client leaves.

    Args:
      replies: makes the reply's objects.
      submission: submits the generations to the engine.
      metrics: the server's metrics.
      seconds: the seconds after which the reply is broken off, for a client that does not read.
    """

    def __init__(self, replies: Replies, submission: Submission, metrics: ServerMetrics, seconds: float) -> None:
        super().__init__()
        self._replies, self._submission, self._metrics, self._seconds = replies, submission, metrics, seconds
        self._start = time.perf_counter()
        self._num_added = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        generations: list[Generation] = []
        work = asyncio.ensure_future(self._answer(generations, scope, receive, send))
        gone = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({work, gone}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            else:
                self._metrics.cancelled.inc()
        finally:
            for generation in generations:
                generation.close()
            for task in (work, gone):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, ApiError):
                await work

    async def _answer(self, generations: list[Generation], scope: Scope, receive: Receive, send: Send) -> None:
        """Submits the generations before it sends anything, so that a refusal by the engine becomes an error reply."""
        request = self._replies.request
        echoes = await self._echoes()
        if request.options.max_new_tokens:
            for _, each in request.generations():
                generations.append(Generation(self._replies.model, each, request.stops))
                await generations[-1].start(self._submission)
        if request.is_stream:
            await self._stream(generations, echoes, send)
            return
        whole = await self._whole(generations, echoes)
        await JsonResponse(whole)(scope, receive, send)

    async def _echoes(self) -> list[Echo | None]:
        """Returns the echo of each choice's prompt, or None for each if the request wants none."""
        request = self._replies.request
        prompts = request.prompts
        if not request.has_echo:
            return [None] * (len(prompts) * request.num_choices)
        has_scores = request.options.num_likeliest is not None
        scores = [list[float | None]() for _ in prompts]
        if has_scores:
            scores = await likelihoods(self._replies.model, prompts, request.options.client)
        echoes = [Echo(prompt, score) for prompt, score in zip(prompts, scores, strict=True)]
        return [echo for echo in echoes for _ in range(request.num_choices)]

    async def _whole(self, generations: list[Generation], echoes: list[Echo | None]) -> dict[str, Any]:
        async with _together() as run:
            tasks = [run(self._joined(generation)) for generation in generations]
        pieces = [task.result() for task in tasks] or [FULL] * len(echoes)
        choices = [
            self._replies.choice(index, piece, echo)
            for index, (piece, echo) in enumerate(zip(pieces, echoes, strict=True))
        ]
        return self._replies.whole(choices, self._num_added)

    async def _joined(self, generation: Generation) -> Piece:
        pieces = [piece async for piece in self._timed(generation)]
        tokens = tuple(token for piece in pieces for token in piece.tokens)
        return dataclasses.replace(pieces[-1], text="".join(piece.text for piece in pieces), tokens=tokens)

    async def _stream(self, generations: list[Generation], echoes: list[Echo | None], send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        lock = asyncio.Lock()

        async def event(value: dict[str, Any] | str) -> None:
            text = value if isinstance(value, str) else json_text(value, ensure_ascii=False, separators=(",", ":"))
            async with lock:
                await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})

        try:
            async with _together() as run:
                for index, echo in enumerate(echoes):
                    run(self._send_choice(index, generations[index] if generations else None, echo, event))
            if self._replies.request.tells_usage:
                await event(self._replies.chunk([], self._replies.usage(self._num_added)))
            await event("[DONE]")
        except ApiError as error:
            await event(error.body())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_choice(
        self,
        index: int,
        generation: Generation | None,
        echo: Echo | None,
        event: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        async def only() -> AsyncIterator[Piece]:
            yield FULL

        is_first = True
        async for piece in only() if generation is None else self._timed(generation):
            if piece.text or piece.tokens or piece.finish or (is_first and (echo or self._replies.request.is_chat)):
                choice = self._replies.choice(index, piece, echo, is_delta=True, is_first=is_first)
                await event(self._replies.chunk([choice]))
                is_first = False

    async def _timed(self, generation: Generation) -> AsyncIterator[Piece]:
        """Yields the pieces of a generation, and records their times."""
        last, count = self._start, 0
        async for piece in generation.pieces():
            if piece.num_tokens > count:
                now = time.perf_counter()
                metric = self._metrics.token_seconds if count else self._metrics.first_token_seconds
                metric.observe(now - last)
                last = now
                self._num_added += piece.num_tokens - count
                count = piece.num_tokens
            yield piece


@contextlib.asynccontextmanager
async def _together() -> AsyncIterator[Callable[[Any], asyncio.Task[Any]]]:
    """Runs coroutines concurrently. The first error cancels the others, and is raised without an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group.create_task
    except* Exception as errors:
        raise errors.exceptions[0] from None
