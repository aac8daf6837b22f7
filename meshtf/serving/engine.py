"""The interface between a server's front and the engine that runs the model: requests in token ids, tokens back."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import enum
from collections.abc import Callable
from typing import Protocol

from meshtf.train.decoding.forms.constraints import Constraint


class Finish(enum.Enum):
    """The reason for which a generation ended. The values are the ones of the OpenAI-style schema, where it has one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


DRAINING = "the engine takes no more requests"
"""The message to a request that comes while the engine drains."""


class EngineBusyError(Exception):
    """The engine's queue has no room for this client's request, which may come again later."""


class EngineClosedError(Exception):
    """The engine drains, or has ended, and takes no more requests. The message says why."""


class EngineFailedError(Exception):
    """The engine took a request, and its work failed."""


class RequestError(ValueError):
    """The engine cannot run this request: for example, its prompt is too long.

    A front whose requests have fields of other names puts its own name before `told`.

    Attributes:
      told: what is wrong.
      field: the field of `GenerationRequest` at fault, which the message names before `told`; None if `told` says it.
    """

    def __init__(self, told: str, field: str | None = None) -> None:
        super().__init__(told if field is None else f"{field} {told}")
        self.told, self.field = told, field


@dataclasses.dataclass(frozen=True)
class GenerationRequest:
    """A prompt and the way in which it is continued.

    Attributes:
      prompt: the ids of the prompt.
      max_new_tokens: the greatest number of tokens that are added.
      temperature, top_k, top_p, min_p: as in `meshtf.train.decoding.sampling.Sampling`. A temperature of 0 takes the
        most likely token.
      repetition_penalty, presence_penalty, frequency_penalty, min_new_tokens: as in
        `meshtf.train.decoding.penalties.Penalties`.
      stop_ids: the tokens that end the generation.
      seed: the seed of the draws. A request draws the same tokens whatever else the engine runs.
      num_likeliest: the number of the most likely tokens that are told with each token; None tells no likelihoods.
      deadline_seconds: the time after which the generation ends as timed out, counted from its submission.
      constraint: the form that the text must have, or None.
      client: the name of whom the engine treats fairly beside others.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_new_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    seed: int = 0
    num_likeliest: int | None = None
    deadline_seconds: float | None = None
    constraint: Constraint | None = None
    client: str = ""


@dataclasses.dataclass(frozen=True)
class GeneratedToken:
    """A token that the model added.

    Attributes:
      id: its id.
      log_likelihood: its log-likelihood in nats, if the request asked for it.
      likeliest: the ids and log-likelihoods of the most likely tokens, the likeliest first.
    """

    id: int
    log_likelihood: float | None = None
    likeliest: tuple[tuple[int, float], ...] = ()


class Listener(Protocol):
    """Hears of one generation. The engine calls it from its own thread, and it must return at once.

    `failed` hears of a RequestError if something in the request ended the text, as a form that cannot go on.
    """

    def token(self, token: GeneratedToken) -> None: ...

    def finished(self, reason: Finish) -> None: ...

    def failed(self, error: EngineFailedError | RequestError) -> None: ...


@dataclasses.dataclass(frozen=True)
class EngineLimits:
    """The sizes that requests must keep.

    Attributes:
      max_length: the greatest number of tokens of a prompt and its continuation together.
      max_scored: the greatest number of tokens of a text that is scored.
      vocab_size: the number of token ids.
      max_likeliest: the greatest `num_likeliest`.
      form_seconds: the seconds for which a request may wait until its form is compiled.
    """

    max_length: int
    max_scored: int
    vocab_size: int
    max_likeliest: int
    form_seconds: float


@dataclasses.dataclass(frozen=True)
class EngineStatus:
    """The work of an engine at a moment.

    Attributes:
      num_running: the number of generations in the batch.
      num_waiting: the number of generations in the queue.
      num_pages, num_free_pages: the pages of the cache.
      num_steps: the number of steps that ran.
      num_tokens: the number of tokens that were added.
      num_prompt_tokens: the number of prompt tokens that were read.
      num_shared_tokens: the number of prompt tokens that were found in the cache.
      step_seconds: how long the present step has run; 0 if none runs.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_pages: int = 0
    num_free_pages: int = 0
    num_steps: int = 0
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    num_shared_tokens: int = 0
    step_seconds: float = 0.0


class Engine(Protocol):
    """Runs many generations at once. All methods may be called from any thread."""

    @property
    def limits(self) -> EngineLimits: ...

    def submit(self, request: GenerationRequest, listener: Listener) -> int:
        """Queues a generation, and returns its number. It may take seconds if the request has a constraint that is new.

        Raises:
          RequestError: if it cannot run.
          EngineBusyError: if the queue has no room for it.
          EngineClosedError: if the engine drains, or has ended.
        """
        ...

    def cancel(self, number: int) -> None:
        """Ends a generation early. Does nothing if it has ended."""
        ...

    def score(self, ids: tuple[int, ...], client: str = "") -> concurrent.futures.Future[list[float]]:
        """Queues a sequence of a client. The result is the log-likelihood of each of its tokens, in nats.

        The result of work that fails is an EngineFailedError. A future that is cancelled before its turn takes no time.

        Raises:
          RequestError: if it is too long.
          EngineBusyError: if the queue has no room for it.
          EngineClosedError: if the engine drains, or has ended.
        """
        ...

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` with a message, from any thread, once the engine has failed for good."""
        ...

    def status(self) -> EngineStatus: ...

    def drain(self, seconds: float) -> bool:
        """Takes no more requests, and waits until all have ended. Cancels the rest after `seconds`, and then
        returns False."""
        ...

    def close(self) -> None: ...
