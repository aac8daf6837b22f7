"""One generation of an engine, as an event loop receives it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence

from meshtf.serving.engine import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    Finish,
    GeneratedToken,
    GenerationRequest,
    RequestError,
)
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.requests import Prompt
from meshtf.serving.http.served_model import ServedModel
from meshtf.serving.http.submission import Submission
from meshtf.serving.http.token_text import StopTexts, TokenText

_Event = GeneratedToken | Finish | EngineFailedError | RequestError

_BUSY_SECONDS = 1
_SCORES_AT_ONCE = 8
_FIELDS = {
    "constraint": "response_format",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "num_likeliest": "logprobs",
}
"""The names of `GenerationRequest`'s fields in HTTP requests, where they differ."""


@dataclasses.dataclass(frozen=True)
class ShownToken:
    """A token whose text is shown.

    Attributes:
      token: the engine's token.
      text: its text inside of a text.
      offset: the number of characters before it.
    """

    token: GeneratedToken
    text: str
    offset: int


@dataclasses.dataclass(frozen=True)
class Piece:
    """The new part of a generation since the last piece.

    Attributes:
      text: the text that may be shown.
      tokens: the tokens that belong to it.
      finish: why the generation ended, in the last piece.
      num_tokens: the number of tokens so far.
    """

    text: str = ""
    tokens: tuple[ShownToken, ...] = ()
    finish: Finish | None = None
    num_tokens: int = 0


class _Mailbox:
    """A `Listener` that passes events from the engine's thread to a queue of an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.events: asyncio.Queue[_Event] = asyncio.Queue()

    def token(self, token: GeneratedToken) -> None:
        self._put(token)

    def finished(self, reason: Finish) -> None:
        self._put(reason)

    def failed(self, error: EngineFailedError | RequestError) -> None:
        self._put(error)

    def _put(self, event: _Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)


class Generation:
    """A generation. Call `start` first. `close` ends it at any point."""

    def __init__(self, model: ServedModel, request: GenerationRequest, stops: Sequence[str]) -> None:
        self._model, self._request = model, request
        self._stops = StopTexts(stops)
        self._mailbox = _Mailbox()
        self._text = TokenText(model.vocabulary, request.prompt)
        self._waiting: list[ShownToken] = []
        self._num_tokens = self._num_decoded = self._num_shown = 0
        self._is_done = True

    async def start(self, submission: Submission) -> None:
        """Submits it.

        Raises:
          ApiError: if the engine refuses it.
        """
        with _refusals():
            self._number = await submission.submit(self._request, self._mailbox)
        self._is_done = False

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yields a piece for each token. The last piece says why the generation ended.

        Raises:
          ApiError: if the generation fails.
        """
        while not self._is_done:
            event = await self._mailbox.events.get()
            if isinstance(event, Exception):
                self._is_done = True
                raise _told(event)
            yield self._ended(event) if isinstance(event, Finish) else self._added(event)

    def close(self) -> None:
        """Cancels the generation, if it has not ended."""
        if not self._is_done:
            self._is_done = True
            self._model.engine.cancel(self._number)

    def _added(self, token: GeneratedToken) -> Piece:
        self._num_tokens += 1
        if token.id in self._request.stop_ids:
            return Piece(num_tokens=self._num_tokens)
        self._waiting.append(ShownToken(token, self._model.token_text(token.id), self._num_decoded))
        new = self._text.add(token.id)
        self._num_decoded += len(new)
        shown = self._shown(self._stops.add(new))
        if self._stops.is_found:
            self.close()
            return dataclasses.replace(shown, finish=Finish.STOP)
        return shown

    def _ended(self, reason: Finish) -> Piece:
        self._is_done = True
        text = self._stops.add(self._text.rest())
        text += self._stops.rest()
        finish = Finish.STOP if self._stops.is_found else reason
        shown = self._shown(text)
        rest = () if self._stops.is_found else tuple(self._waiting)
        return Piece(shown.text, shown.tokens + rest, finish, self._num_tokens)

    def _shown(self, text: str) -> Piece:
        """A piece with this text and the tokens that begin in it. A token without text goes into the next piece."""
        self._num_shown += len(text)
        count = sum(1 for each in self._waiting if each.offset < self._num_shown)
        tokens, self._waiting = tuple(self._waiting[:count]), self._waiting[count:]
        return Piece(text, tokens, None, self._num_tokens)


async def likelihoods(model: ServedModel, prompts: Sequence[Prompt], client: str) -> list[list[float | None]]:
    """Returns the log-likelihood of each token of a client's texts. If it is interrupted, it cancels the remaining
    scores.

    Raises:
      ApiError: if the engine refuses a text, or fails.
    """
    found: list[list[float | None]] = []
    for first in range(0, len(prompts), _SCORES_AT_ONCE):
        scores: list[asyncio.Future[list[float | None]]] = []
        with _refusals():
            try:
                for prompt in prompts[first : first + _SCORES_AT_ONCE]:
                    scores.append(asyncio.wrap_future(model.engine.score(prompt.ids, client)))
                found += [await score for score in scores]
            finally:
                for score in scores:
                    score.cancel()
    return found


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns errors of the engine into errors for the reply."""
    try:
        yield
    except RequestError as error:
        raise _told(error) from None
    except EngineBusyError as error:
        raise ApiError(_sentence(error), 429, code="overloaded", retry_after=_BUSY_SECONDS) from None
    except EngineClosedError as error:
        raise ApiError(_sentence(error), 503, code="overloaded", retry_after=_BUSY_SECONDS) from None
    except EngineFailedError as error:
        raise ApiError(_sentence(error), 500) from None


def _told(error: EngineFailedError | RequestError) -> ApiError:
    """The error reply for a failed generation. It calls a field by its name in HTTP requests."""
    if isinstance(error, EngineFailedError):
        return ApiError(f"The generation failed: {error}", 500)
    if error.field is None:
        return ApiError(_sentence(error))
    field = _FIELDS.get(error.field, error.field)
    return ApiError(_stopped(f"{field} {error.told}"), param=field)


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return _stopped(text[:1].upper() + text[1:])


def _stopped(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
