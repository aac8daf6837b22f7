"""The sizes of an engine."""

from __future__ import annotations

import dataclasses

from meshtf.errors import UsageError
from meshtf.field_checks import check, check_kinds


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """The sizes of an engine. Its programs are compiled once, for these sizes.

    Attributes:
      num_rows: the number of generations that run at once.
      num_prompt_tokens: the number of further tokens, from prompts, that a step reads.
      page_size: the number of positions in a page of the cache.
      num_pages: the number of pages. The default is enough for `num_rows` sequences of the greatest length.
      num_lengths: how many text lengths programs are compiled for, at most: the greatest, a quarter of it, a sixteenth,
        and so on. A step runs the program for its longest text, because programs for longer texts are slower.
      queue_length: the places for waiting generations, and as many for scores. One client alone gets half of them.
      max_likeliest: the largest number of most likely tokens that a request may ask for.
      form_seconds: the seconds that a form may take to compile, and for which a request may wait for it.

    Raises:
      UsageError: if a size is less than 1, or the time is no more than 0.
    """

    num_rows: int = 8
    num_prompt_tokens: int = 32
    page_size: int = 16
    num_pages: int | None = None
    num_lengths: int = 2
    queue_length: int = 512
    max_likeliest: int = 20
    form_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in (field.name for field in dataclasses.fields(self) if field.name != "form_seconds"):
            value = getattr(self, name)
            if not (value is None and name == "num_pages") and (not isinstance(value, int) or value < 1):
                raise UsageError(f"EngineOptions: {name} must be an integer, 1 or more, and is {value!r}")
        check_kinds(self, UsageError)
        check(self, "form_seconds", self.form_seconds > 0, "more than 0", UsageError)

    def pages_for(self, length: int) -> int:
        """The number of pages of a sequence of this length."""
        return -(-length // self.page_size)

    def page_counts(self, max_length: int) -> list[int]:
        """The numbers of pages of one text for which programs are compiled, the smallest first.

        Examples:
          >>> EngineOptions(page_size=16, num_lengths=3).page_counts(250)
          [1, 4, 16]
        """
        most = self.pages_for(max_length)
        return sorted({-(-most // 4**n) for n in range(self.num_lengths)})

    def pages(self, max_length: int) -> int:
        """The number of pages of the cache, for sequences of this greatest length."""
        return self.num_rows * self.pages_for(max_length) if self.num_pages is None else self.num_pages
