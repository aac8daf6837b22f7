"""A generation that an engine runs: its tokens, its pages, and how far it has come."""

from __future__ import annotations

import contextlib
import dataclasses
import time

from meshtf.serving.engine import (
    EngineFailedError,
    Finish,
    GeneratedToken,
    GenerationRequest,
    Listener,
    RequestError,
)
from meshtf.serving.forms import Form
from meshtf.serving.page_pool import ROOT, PagePool
from meshtf.serving.row_choice import RowChoice


@dataclasses.dataclass(eq=False)
class Generation:
    """The state of one request.

    Attributes:
      number: its number.
      request: the request.
      listener: the object that receives its events.
      choice: how its tokens are chosen.
      tokens: the tokens that the model reads: the one before the text, the prompt, and the added ones.
      num_given: how many of these the generation began with.
      submitted_at: the time of its submission, by `time.monotonic`.
      pages: the pages that it holds, in order.
      num_read: how many of its tokens are in the cache.
      num_registered: how many of its pages are full and registered in the pool, where other generations find them.
      text: the pool's number for the text in the registered pages.
      is_cancelled: whether it must end early.
      num_faults: the number of failed steps that it was in.
      is_suspect: whether it was in a failed step and has added no token since. It then runs alone.
      form: the form of the text, if it has one.
      fault: the error that ends it, if there is one.
    """

    number: int
    request: GenerationRequest
    listener: Listener
    choice: RowChoice
    tokens: list[int]
    num_given: int
    submitted_at: float = dataclasses.field(default_factory=time.monotonic)
    pages: list[int] = dataclasses.field(default_factory=list)
    num_read: int = 0
    num_registered: int = 0
    text: int = ROOT
    is_cancelled: bool = False
    num_faults: int = 0
    is_suspect: bool = False
    form: Form | None = None
    fault: EngineFailedError | RequestError | None = None

    @property
    def num_waiting(self) -> int:
        """The number of tokens that are still to be read before the next one can be chosen."""
        return len(self.tokens) - self.num_read

    @property
    def greatest_length(self) -> int:
        """The greatest number of tokens that the model reads. It never reads the last token that is added."""
        return self.num_given + self.request.max_new_tokens - 1

    @property
    def is_late(self) -> bool:
        limit = self.request.deadline_seconds
        return limit is not None and time.monotonic() - self.submitted_at >= limit

    def early_end(self) -> Finish | None:
        """Returns why it must end now, whatever its tokens are, or None."""
        if self.is_cancelled:
            return Finish.CANCELLED
        return Finish.TIMED_OUT if self.is_late else None

    def admitted(self, pool: PagePool) -> bool:
        """Takes all pages that it may need, so that it never waits for one later. Returns whether there were enough."""
        # The last given token is always read, because its logits give the next token.
        shared = pool.found(self.tokens[: self.num_given - 1])
        wanted = -(-self.greatest_length // pool.page_size)
        pages = pool.take(shared, wanted - len(shared))
        if pages is None:
            return False
        self.pages, self.num_registered = pages, len(shared)
        self.num_read = len(shared) * pool.page_size
        self.text = pool.number_of(shared[-1]) if shared else ROOT
        return True

    def forget(self) -> None:
        """Starts over with nothing in the cache. The tokens stay, and are read again."""
        self.pages, self.num_read, self.num_registered, self.text = [], 0, 0, ROOT

    def has_read(self, count: int, pool: PagePool) -> None:
        """Records that the cache has `count` more of its tokens, and registers its full pages."""
        self.num_read += count
        size = pool.page_size
        while (self.num_registered + 1) * size <= self.num_read:
            first = self.num_registered * size
            own = tuple(self.tokens[first : first + size])
            self.text = pool.register(self.pages[self.num_registered], self.text, own)
            self.num_registered += 1

    def add(self, token: GeneratedToken) -> Finish | None:
        """Adds a token. Returns why the generation has ended, or None."""
        self.tokens.append(token.id)
        with contextlib.suppress(Exception):  # a listener's error must not stop the engine
            self.listener.token(token)
        if token.id in self.request.stop_ids or (self.form is not None and self.form.ends_with(token.id)):
            return Finish.STOP
        if len(self.tokens) - self.num_given >= self.request.max_new_tokens:
            return Finish.LENGTH
        if self.form is not None:
            try:
                self.form.add(token.id)
            except (EngineFailedError, RequestError) as error:
                self.fault = error
        return None

    @property
    def banned(self) -> tuple[int, ...]:
        """The tokens that may not come next."""
        is_early = len(self.tokens) - self.num_given < self.request.min_new_tokens
        return self.request.stop_ids if is_early else ()
