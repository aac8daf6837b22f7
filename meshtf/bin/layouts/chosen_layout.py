"""Reads a configuration. With `--layout=auto` a search finds its layout."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin.shared.waiting import news
from meshtf.costs import load_machine
from meshtf.layout_search import SearchProgress
from meshtf.train.configuration import read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.layouts.all_searches import SearchEffort
from meshtf.train.layouts.automatic_layout import ChosenLayout, chosen_layout
from meshtf_programs.command_lines.shared.command_line import FlagError

_NO_SEARCH = "--{flag} has no effect without --layout=auto; leave it out"


def read_with_layout(
    values: flags.FlagValues,
    files: Sequence[Path],
    parameters: Sequence[str | Parameter],
    run_before: Callable[[], str | None] = lambda: None,
    *,
    is_told: bool = True,
) -> ChosenLayout | None:
    """Reads a configuration. If it asks for a search, reads it again with the layout found, and returns that layout.

    Args:
      values: the values of the flags, with --machine, --search_operations and --search_seconds.
      files, parameters: the configuration.
      run_before: returns the operative configuration of the run that is resumed, if one is.
      is_told: whether to show the progress of the search on standard error.

    Raises:
      ConfigurationError, LayoutError, MachineError: as `chosen_layout`.
    """
    machine = None if values.machine is None else functools.partial(load_machine, values.machine)
    with told_progress() as tell:
        effort = search_effort(values, tell if is_told else None)
        chosen = chosen_layout(files, parameters, machine, run_before, effort=effort)
    if chosen is not None:
        read_configuration(files, [*parameters, *chosen.bindings])
    return chosen


def check_no_search_flags(values: flags.FlagValues, *names: str) -> None:
    """Raises FlagError for a flag of a search, if there is no search."""
    for name in names:
        if values[name].value is not None:
            raise FlagError(_NO_SEARCH.format(flag=name))


def search_effort(values: flags.FlagValues, progress: Callable[[SearchProgress], None] | None) -> SearchEffort:
    """Returns the limits that --search_operations and --search_seconds set."""
    return SearchEffort(values.search_operations, values.search_seconds, progress)


@contextlib.contextmanager
def told_progress() -> Iterator[Callable[[SearchProgress], None]]:
    """Yields a function that shows a search's progress on standard error. It shows nothing if no search begins."""
    with contextlib.ExitStack() as stack:
        tell: list[Callable[[object], None]] = []

        def progress(so_far: SearchProgress) -> None:
            if not tell:
                tell.append(stack.enter_context(news(str(so_far))))
            tell[0](so_far)

        yield progress
