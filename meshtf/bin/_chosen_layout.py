"""`--layout=auto`: the configuration with the layout that was found for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.costs import load_machine
from meshtf.train.automatic_layout import ChosenLayout, chosen_layout
from meshtf.train.configuration import read_configuration
from meshtf.train.gin_files.bindings import Parameter


def read_with_layout(
    values: flags.FlagValues,
    files: Sequence[Path],
    parameters: Sequence[str | Parameter],
    run_before: Callable[[], str | None] = lambda: None,
) -> ChosenLayout | None:
    """Reads a configuration, with the layout that is found for it where it asks for one; None where it does not.

    Args:
      values: of the flags, --machine among them.
      files, parameters: of the configuration.
      run_before: gives the operative configuration of the run that is resumed, if one is.

    Raises:
      ConfigurationError, LayoutError, MachineError: of `chosen_layout`.
    """
    machine = None if values.machine is None else functools.partial(load_machine, values.machine)
    chosen = chosen_layout(files, parameters, machine, run_before)
    if chosen is not None:
        read_configuration(files, [*parameters, *chosen.bindings])
    return chosen
