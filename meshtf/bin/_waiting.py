"""Says on standard error that something takes its time: a line that counts where it is a terminal, else one in 30 s."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console

from meshtf.train.monitoring.progress import duration

SECONDS_BETWEEN_LINES = 30


@contextlib.contextmanager
def waiting(what: str, console: Console | None = None) -> Iterator[Callable[[float], None]]:
    """Gives a function to be called often, with the seconds that have passed."""
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
