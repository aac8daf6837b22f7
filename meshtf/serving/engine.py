"""The interface between a server's front end and the engine: requests hold token ids, and the results are tokens."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import enum
from collections.abc import Callable
from typing import Protocol

from meshtf.train.decoding.forms.constraints import Constraint


class Finish(enum.Enum):
    """The reason why a generation ended. The values are those of the OpenAI-style schema where it has one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


DRAINING = "the engine takes no more requests"
"""The error message for a request that arrives while the engine drains."""


class EngineBusyError(Exception):
    """The engine's queue has no room for this client's request. The client may retry later."""


class EngineClosedError(Exception):
    """The engine drains or has ended, so it accepts no more requests. The message says why."""


class EngineFailedError(Exception):
    """The engine accepted a request, but failed to run it."""


class RequestError(ValueError):
    """The engine cannot run this request: for example, its prompt is too long.

    A front end with other field names writes its own name before `told`.

    Attributes:
      told: the problem.
      field: the wrong field of `GenerationRequest`. The message is its name and `told`, or `told` alone if it is None.
    """

    def __init__(self, told: str, field: str | None = None) -> None:
        super().__init__(told if field is None else f"{field} {told}")
        self.told, self.field = told, field


@dataclasses.dataclass(frozen=True)
class GenerationRequest:
    """A prompt, and how to continue it.

    Attributes:
      prompt: the ids of the prompt.
      max_new_tokens: the largest number of tokens to add.
      temperature, top_k, top_p, min_p: as in `meshtf.train.decoding.sampling.Sampling`. A temperature of 0 takes the
        most likely token.
      repetition_penalty, presence_penalty, frequency_penalty, min_new_tokens: as in
        `meshtf.train.decoding.penalties.Penalties`.
      stop_ids: the tokens that end the generation.
      seed: the seed of the draws. A request draws the same tokens whatever else the engine runs.
      num_likeliest: how many of the most likely tokens to return with each token. None returns no likelihoods.
      deadline_seconds: the time after which the generation ends as timed out, counted from its submission.
      constraint: the form that the text must have, or None.
      client: the client's name. The engine divides its queue fairly among clients.
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
    """Receives the events of one generation. The engine calls it from its own thread, so each method must return fast.

    `failed` receives a RequestError if the request itself ended the text, such as by a form that no token continues.
    """

    def token(self, token: GeneratedToken) -> None: ...

    def finished(self, reason: Finish) -> None: ...

    def failed(self, error: EngineFailedError | RequestError) -> None: ...


@dataclasses.dataclass(frozen=True)
class EngineLimits:
    """The limits that requests must respect.

    Attributes:
      max_length: the greatest number of tokens of a prompt and its continuation together.
      max_scored: the greatest number of tokens of a text that is scored.
      vocab_size: the number of token ids.
      max_likeliest: the greatest `num_likeliest`.
      form_seconds: how long a request may wait for the compilation of its form, in seconds.
    """

    max_length: int
    max_scored: int
    vocab_size: int
    max_likeliest: int
    form_seconds: float


@dataclasses.dataclass(frozen=True)
class EngineStatus:
    """A snapshot of an engine's work.

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
        """Queues a generation, and returns its number. A constraint that is new may take seconds to compile.

        Raises:
          RequestError: if the request cannot run.
          EngineBusyError: if the queue has no room for it.
          EngineClosedError: if the engine drains, or has ended.
        """
        ...

    def cancel(self, number: int) -> None:
        """Ends a generation early. Does nothing if it has ended."""
        ...

    def score(self, ids: tuple[int, ...], client: str = "") -> concurrent.futures.Future[list[float | None]]:
        """Queues a client's sequence. The future's result is the log-likelihood of each token, in nats. It is None for
        the first token if nothing predicts it.

        The future raises an EngineFailedError if the work fails. The engine skips a future that is cancelled in time.

        Raises:
          RequestError: if the sequence is too long.
          EngineBusyError: if the queue has no room for it.
          EngineClosedError: if the engine drains, or has ended.
        """
        ...

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` with a message, from any thread, once the engine has failed for good."""
        ...

    def status(self) -> EngineStatus: ...

    def drain(self, seconds: float) -> bool:
        """Accepts no more requests, and waits until all have ended. After `seconds` it cancels the rest and returns
        False."""
        ...

    def close(self) -> None: ...
