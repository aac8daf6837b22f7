"""Hooks of monitored sessions.

They copy masters to slices when a session begins, and slices to masters before a save.
"""

from __future__ import annotations

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._lowering import Lowering


class MtfRestoreHook(tf.compat.v1.train.SessionRunHook):
    """Gives the slices the masters' values whenever a session is created."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._copy: tf.Operation | None = None

    def begin(self) -> None:
        """Called before the graph is finalized."""
        self._copy = self._lowering.copy_masters_to_slices()

    def after_create_session(self, session: tf.compat.v1.Session, coord: object) -> None:
        """Called when masters have been initialized or restored."""
        session.run(self._copy)


class MtfCheckpointSaverListener(tf.compat.v1.train.CheckpointSaverListener):
    """Gives the masters the slices' values before a checkpoint is saved."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._copy: tf.Operation | None = None

    def begin(self) -> None:
        """Called before the graph is finalized."""
        self._copy = self._lowering.copy_slices_to_masters()

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Called before a checkpoint is written."""
        session.run(self._copy)
