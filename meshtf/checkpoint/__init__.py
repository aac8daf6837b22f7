"""Checkpoints: the variables of a store, slice by slice, in TensorFlow's own format.

No process makes a whole copy of a variable. A checkpoint does not depend on the mesh, on the layout, or on whether
layers ran as a scan or unrolled. So it can be restored with another mesh, layout or form of the layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.checkpoint.checkpoint_folder import CheckpointFolder
from meshtf.checkpoint.reading.restoring import WarmStart, restore, warm_start
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.checkpoint.saving.background_saver import BackgroundSaver
from meshtf.errors import unknown_name

__all__ = ["BackgroundSaver", "CheckpointFolder", "SavedCheckpoint", "WarmStart", "restore", "warm_start"]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept every name
    __getattr__ = unknown_name(__name__, __all__)
