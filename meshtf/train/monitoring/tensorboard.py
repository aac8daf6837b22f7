"""Curves, histograms and texts for TensorBoard, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import tensorflow as tf

from meshtf.train.monitoring.metrics import Vectors

MISSING_TENSORBOARD = "nothing is written for TensorBoard, which is not installed (pip install 'meshtf[tensorboard]')"


class Board(Protocol):
    """Takes curves, histograms and texts."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None: ...

    def histograms(self, step: int, vectors: Vectors) -> None: ...

    def text(self, name: str, text: str) -> None: ...


class NoBoard:
    """Writes nothing."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def histograms(self, step: int, vectors: Vectors) -> None:
        pass

    def text(self, name: str, text: str) -> None:
        pass


class TensorBoard:
    """Writes into a folder, and flushes each time.

    Args:
      folder: of the run.
      last_step: after which the run goes on. What an interrupted run left of later steps is not shown.
    """

    def __init__(self, folder: Path, last_step: int = 0) -> None:
        self._first_step = last_step + 1
        _write_start(folder, self._first_step)
        self._writer = tf.summary.create_file_writer(str(folder))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def histograms(self, step: int, vectors: Vectors) -> None:
        """One of each vector [n], and of each layer of a vector [layers, n], as `<name>/layer_000`."""
        with self._writer.as_default(step=step):
            for name, x in vectors.items():
                for number, row in enumerate(np.atleast_2d(x)):
                    tf.summary.histogram(f"{name}/layer_{number:03}" if x.ndim > 1 else name, row)
        self._writer.flush()

    def text(self, name: str, text: str) -> None:
        """Of the run from its first step on; shown with its line breaks and columns as they are."""
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        with self._writer.as_default(step=self._first_step):
            tf.summary.text(name, indented)
        self._writer.flush()


def open_board(folder: Path, last_step: int = 0) -> Board:
    """A TensorBoard folder, for a run that goes on after this step.

    Where TensorBoard is not installed, a line says so and nothing is written.
    """
    if importlib.util.find_spec("tensorboard") is None:
        print(MISSING_TENSORBOARD)
        return NoBoard()
    return TensorBoard(folder, last_step)


def _write_start(folder: Path, step: int) -> None:
    """Makes TensorBoard forget what it has read of this step and of later ones.

    It does so from the second such event of a folder on: a run that begins anew writes one, too.
    """
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    # A file of its own, which by its name is read before the one that is made next. The writer needs a graph.
    with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(str(folder)) as writer:
        writer.add_session_log(start, step)
