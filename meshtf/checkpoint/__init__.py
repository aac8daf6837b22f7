"""Checkpoints: the variables of a store, slice by slice, in TensorFlow's own format.

No whole copy of a variable is made anywhere. A checkpoint does not depend on the mesh, the layout, or whether layers
ran as a scan or unrolled. Variables saved under one of these are restored under any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.checkpoint.checkpoint_folder import CheckpointFolder
from meshtf.checkpoint.reading.restoring import WarmStart, restore, warm_start
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.checkpoint.saving.background_saver import BackgroundSaver
from meshtf.errors import unknown_name

__all__ = ["BackgroundSaver", "CheckpointFolder", "SavedCheckpoint", "WarmStart", "restore", "warm_start"]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
