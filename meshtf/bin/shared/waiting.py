"""Shows progress on standard error: one changing line on a terminal, and a few lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

from meshtf.train.monitoring.progress import duration

SECONDS_BETWEEN_LINES = 30
SECONDS_BETWEEN_NEWS = 10


@contextlib.contextmanager
def waiting(what: str, console: Console | None = None) -> Iterator[Callable[[float], None]]:
    """Yields a function to be called often, with the seconds that have passed."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, console).show
        return
    with console.status(what) as status:
        yield lambda seconds: status.update(f"{what}, {duration(seconds)}")


class _Lines:
    def __init__(self, what: str, console: Console) -> None:
        self._what, self._console = what, console
        self._next = SECONDS_BETWEEN_LINES

    def show(self, seconds: float) -> None:
        if seconds >= self._next:
            self._next += SECONDS_BETWEEN_LINES
            self._console.print(f"{self._what}, {duration(seconds)}", markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def news(first: str, console: Console | None = None) -> Iterator[Callable[[object], None]]:
    """Yields a function that shows the latest news. It may be called as often as you like.

    Args:
      first: the text before the first call, on a terminal.
      console: the console. The default is standard error.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _News(console).tell
        return
    in_one_line = TextColumn(
        "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
    )
    with Progress(SpinnerColumn(), in_one_line, console=console, transient=True, expand=True) as line:
        task = line.add_task(first, total=None)
        yield lambda said: line.update(task, description=str(said))


class _News:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = time.monotonic() + SECONDS_BETWEEN_NEWS

    def tell(self, said: object) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SECONDS_BETWEEN_NEWS
            self._console.print(str(said), markup=False, highlight=False, soft_wrap=True)
