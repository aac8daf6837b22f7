"""Decides what each step reads: who joins the batch, who leaves it, and which tokens are read.

In each step every text in the batch reads one token, and prompts share `num_prompt_tokens` more. For example, there are
4 of these, A and B are being continued, and C joins with a prompt of ten tokens:

    step    A    B    C
    1       1    1    5
    2       1    1    5, so C gets its first token
    3       1    1    1
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np

from meshtf.serving.engine import EngineFailedError, EngineStatus, Finish, GeneratedToken, RequestError
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.fair_queue import FairQueue
from meshtf.serving.generation import Generation
from meshtf.serving.page_pool import PagePool
from meshtf.serving.step_program import StepSizes

Reads = list[tuple[Generation, int]]
"""The generations of a step, and how many tokens of each are read."""

End = Finish | EngineFailedError | RequestError
"""The reason why a generation has ended, or the error."""

_MOST_FAULTS = 3
"""The number of failed steps after which a generation fails, even if others were in all of these steps."""


class Scheduler:
    """The batch, the queue and the pages. One thread uses it at a time.

    Each step reads one token of every generation in the batch. The remaining tokens go to prompts, the oldest first. A
    generation joins when a row and all pages that it may need are free. Later ones wait behind it, so that short texts
    cannot overtake a long text for ever.

    A failed step empties the cache, and the whole batch starts over. Each generation that was in the step then runs
    alone until it has added a token. So a generation that makes every step fail ends, and the others continue.
    """

    def __init__(self, options: EngineOptions, num_pages: int) -> None:
        self.options, self.pool = options, PagePool(num_pages, options.page_size)
        self.queue: FairQueue[Generation] = FairQueue(options.queue_length)
        self.running: list[Generation] = []
        self.again: collections.deque[Generation] = collections.deque()
        self.num_steps = self.num_tokens = self.num_prompt_tokens = self.num_shared_tokens = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.again) or len(self.queue) > 0

    def status(self) -> EngineStatus:
        return EngineStatus(
            num_running=len(self.running),
            num_waiting=len(self.queue) + len(self.again),
            num_pages=self.pool.num_pages,
            num_free_pages=self.pool.num_free,
            num_steps=self.num_steps,
            num_tokens=self.num_tokens,
            num_prompt_tokens=self.num_prompt_tokens,
            num_shared_tokens=self.num_shared_tokens,
        )

    def ended_early(self) -> list[tuple[Generation, End]]:
        """Removes the generations that are cancelled or late."""
        ended = [x for x in self.running if x.early_end() is not None]
        for one in ended:
            self.leave(one)
        # Each is asked once, since a generation may become late between two questions.
        again = [x for x in self.again if x.early_end() is not None]
        self.again = collections.deque(x for x in self.again if x not in again)
        ended += again
        ended += self.queue.taken_if(lambda x: x.early_end() is not None)
        return [(one, one.early_end() or Finish.CANCELLED) for one in ended]

    def admit(self) -> None:
        """Adds generations to the batch while rows and pages are free. Generations that start over come first."""
        while len(self.running) < self.options.num_rows:
            first = self.again[0] if self.again else self.queue.first()
            if first is None or not first.admitted(self.pool):
                return
            if self.again:
                self.again.popleft()
            else:
                self.queue.pop()
            self.num_shared_tokens += first.num_read
            self.running.append(first)

    def leave(self, one: Generation) -> None:
        """Takes a generation out of the batch."""
        self.running.remove(one)
        self.pool.release(one.pages)

    def failed(self, reads: Reads) -> list[Generation]:
        """Empties the cache after a step that failed. Returns the generations that fail with it. The others start
        over.
        """
        ended: list[Generation] = []
        for one, _ in reads:
            one.num_faults += 1
            if one.is_suspect or one.num_faults >= _MOST_FAULTS:
                ended.append(one)
            one.is_suspect = True
        self.again.extendleft(reversed([one for one in self.running if one not in ended]))
        for one in self.again:
            one.forget()
        self.running = []
        self.pool = PagePool(self.pool.num_pages, self.pool.page_size)
        return ended

    def reads(self) -> Reads:
        """The tokens that the next step reads."""
        spare, found = self.options.num_prompt_tokens, []
        for one in next(([x] for x in self.running if x.is_suspect), self.running):
            more = min(one.num_waiting - 1, spare)
            spare -= more
            found.append((one, 1 + more))
        return found

    def done(self, reads: Reads, results: Mapping[str, np.ndarray]) -> list[tuple[Generation, End]]:
        """Adds the tokens that a step chose. Returns the generations that have ended, and have left the batch."""
        ended: list[tuple[Generation, End]] = []
        self.num_steps += 1
        for row, (one, count) in enumerate(reads):
            self.num_prompt_tokens += max(0, min(one.num_given, one.num_read + count) - one.num_read)
            one.has_read(count, self.pool)
            if one.num_waiting:
                continue
            self.num_tokens += 1
            one.is_suspect = False
            reason = one.add(_token(one, {name: x[row] for name, x in results.items()})) or one.fault
            if reason is not None:
                self.leave(one)
                ended.append((one, reason))
        return ended


def step_arrays(reads: Reads, sizes: StepSizes) -> dict[str, np.ndarray]:
    """The inputs of a step that reads these tokens."""
    arrays, slot = sizes.empty(), 0
    for row, (one, count) in enumerate(reads):
        first, end = one.num_read, one.num_read + count
        slots = slice(slot, slot + count)
        arrays["tokens"][slots] = one.tokens[first:end]
        arrays["positions"][slots] = np.arange(first, end)
        pages = one.pages[: sizes.pages]
        arrays["table"][slots, : len(pages)] = pages
        slot += count
        # A prompt that is read in parts gets its next token only with the last part.
        if end < len(one.tokens):
            continue
        arrays["wanted"][row], arrays["at"][row] = slot - 1, end - 1
        one.choice.write(arrays, row)
        arrays["history"][row, :end] = one.tokens
        arrays["first_added"][row] = one.num_given
        arrays["banned"][row, : len(one.banned)] = one.banned
        if one.form is not None:
            arrays["form"][row] = one.form.words
    return arrays


def _token(one: Generation, found: Mapping[str, np.ndarray]) -> GeneratedToken:
    token, count = int(found["ids"]), one.request.num_likeliest
    if count is None:
        return GeneratedToken(token)
    pairs = zip(found["likeliest_ids"][:count].tolist(), found["likeliest"][:count].tolist(), strict=True)
    return GeneratedToken(token, float(found["log_likelihoods"]), tuple(pairs))
