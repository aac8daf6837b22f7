"""The app: its paths, and the reply of each."""

from __future__ import annotations

import dataclasses
import functools
import secrets
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from meshtf.errors import nearest
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.generation import likelihoods
from meshtf.serving.http.guard import Guard, error_response
from meshtf.serving.http.json_response import JsonResponse
from meshtf.serving.http.leaving import unless_left
from meshtf.serving.http.reading.request_body import request_object
from meshtf.serving.http.reading.requests import TextRequest, chat_request, completion_request, score_request
from meshtf.serving.http.replies import Replies, models_reply, score_reply
from meshtf.serving.http.served_model import ServedModel
from meshtf.serving.http.server_metrics import ServerMetrics
from meshtf.serving.http.server_options import ServerOptions
from meshtf.serving.http.submission import Submission
from meshtf.serving.http.text_reply import TextReply

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_GRACE_SECONDS = 30.0
"""The seconds that a reply may last beyond the time limit of its generation, until the client has read it."""

_LONGEST_STEP = 60.0
"""The seconds after which a step of the model counts as one that may hang."""

_SHUTTING_DOWN = "The server is shutting down, and takes no more requests."

_Reader = Callable[[Mapping[str, Any], ServedModel], TextRequest]


@dataclasses.dataclass
class App:
    """Answers requests with a model.

    Attributes:
      model: the model.
      options: the bounds.
      is_ready: whether it accepts requests for text.
      failure: why the engine has failed for good, if it has.
    """

    model: ServedModel
    options: ServerOptions = dataclasses.field(default_factory=ServerOptions)
    is_ready: bool = True
    failure: str | None = None

    def __post_init__(self) -> None:
        self.metrics = ServerMetrics(self.model.engine)
        self.submission = Submission(self.model.engine)

    @functools.cached_property
    def asgi(self) -> ASGIApp:
        """The app in the form that servers call."""
        routes = [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._one_model),
            Route("/v1/completions", functools.partial(self._text, completion_request, "cmpl"), methods=["POST"]),
            Route("/v1/chat/completions", functools.partial(self._text, chat_request, "chatcmpl"), methods=["POST"]),
            Route("/v1/score", self._score, methods=["POST"]),
        ]
        self._paths = tuple(route.path for route in routes)
        handlers: dict[Any, Any] = {HTTPException: self._no_such_path, ApiError: _api_error}
        inner = Starlette(routes=routes, exception_handlers=handlers)
        return Guard(inner, self.options, self.metrics, self._paths)

    async def _text(self, reader: _Reader, prefix: str, request: Request) -> Response:
        said = reader(await self._object_of(request), self.model)
        client = _client_of(request, said.options.client)
        options = dataclasses.replace(said.options, client=client, deadline_seconds=self.options.request_seconds)
        replies = Replies(
            self.model,
            dataclasses.replace(said, options=options),
            f"{prefix}-{secrets.token_hex(12)}",
            int(time.time()),
        )
        return TextReply(replies, self.submission, self.metrics, self.options.request_seconds + _GRACE_SECONDS)

    async def _score(self, request: Request) -> Response:
        said = score_request(await self._object_of(request), self.model)
        work = likelihoods(self.model, said.texts, _client_of(request, said.client))
        scores = await unless_left(request.receive, work, self.options.request_seconds)
        return JsonResponse(score_reply(self.model, said.texts, scores))

    async def _object_of(self, request: Request) -> dict[str, Any]:
        """The JSON object of a request for text or scores. A failed engine itself says why it takes none."""
        found = await request_object(request, self.options)
        if not self.is_ready and self.failure is None:
            raise ApiError(_SHUTTING_DOWN, 503, code="overloaded", retry_after=1)
        return found

    async def _models(self, _: Request) -> Response:
        return JsonResponse(models_reply(self.model))

    async def _one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.model.name:
            hint = nearest(name, [self.model.name]) or f'; this server has "{self.model.name}".'
            raise ApiError(f"There is no model {name[:60]!r}{hint}", 404, "model", "model_not_found")
        return JsonResponse(models_reply(self.model)["data"][0])

    async def _health(self, _: Request) -> Response:
        if self.failure is not None:
            raise ApiError(f"The engine has failed for good: {self.failure}.", 503)
        seconds = self.model.engine.status().step_seconds
        if seconds > _LONGEST_STEP:
            raise ApiError(f"A step of the model has run for {seconds:.0f} s, and may hang.", 503)
        return JsonResponse({"status": "alive"})

    async def _ready(self, _: Request) -> Response:
        if not self.is_ready:
            raise ApiError(_SHUTTING_DOWN, 503, retry_after=1)
        return JsonResponse({"status": "ready"})

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics.text(), media_type=_PROMETHEUS)

    async def _page(self, _: Request) -> Response:
        page = resources.files("meshtf.serving.http") / "assets" / "chat.html"
        return Response(page.read_bytes(), media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    async def _no_such_path(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path, status = request.url.path[:60], error.status_code
        message = f"{path} does not take {request.method}."
        if status == 404:
            hint = (
                nearest(path, self._paths) or "; this server has GET /v1/models and POST /v1/completions, among others."
            )
            message = f"There is no path {path!r}{hint}"
        reply = error_response(ApiError(message, status))
        reply.headers.update(error.headers or {})
        return reply


def _client_of(request: Request, name: str) -> str:
    """The name that a request gives, or else the address that it came from."""
    return name or (request.client.host if request.client else "")


async def _api_error(_: Request, error: Exception) -> Response:
    return error_response(error)
