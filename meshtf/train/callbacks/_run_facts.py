"""What writers say of a run."""

from __future__ import annotations

from meshtf.train.callback import Run
from meshtf.train.resuming import bindings_of


def configuration_of(run: Run) -> dict[str, str]:
    """Every gin binding that was used, by name, as text; none where the run has written no configuration."""
    file = run.folder.operative_config
    return bindings_of(file.read_text()) if file.exists() else {}
