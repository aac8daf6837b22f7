"""The facts about a run that writers of metrics record."""

from __future__ import annotations

from meshtf.train.callback import Run
from meshtf.train.runs.resuming import bindings_of


def configuration_of(run: Run) -> dict[str, str]:
    """Returns every gin binding that was used, by name, as text. It is empty if the run has written no
    configuration.
    """
    file = run.folder.operative_config
    return bindings_of(file.read_text()) if file.exists() else {}
