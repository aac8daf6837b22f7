"""The error for a file of another format that cannot be read."""

from __future__ import annotations

from pathlib import Path

from meshtf.errors import CheckpointError

_REMEDY = "it is cut short or damaged, or was never such a file; copy it again from its source"


def unreadable(path: Path, kind: str, error: BaseException) -> CheckpointError:
    """Returns an error that names the file, what is wrong with it, and what to do."""
    if isinstance(error, OSError) and error.strerror:
        return CheckpointError(f"{path} cannot be read as {kind}: {error.strerror}")
    reason = str(error) or type(error).__name__
    return CheckpointError(f"{path} cannot be read as {kind}: {reason}: {_REMEDY}")
