"""The configurations that meshtf brings along."""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def packaged_folder() -> Path:
    """Where they are."""
    return Path(str(importlib.resources.files("meshtf.gin_configs")))
