"""Writes curves, histograms and texts for TensorBoard, if it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.metrics import Vectors, held_out_names
from meshtf.train.monitoring.progress import StepReport

MISSING_TENSORBOARD = "nothing is written for TensorBoard, which is not installed (pip install 'meshtf[tensorboard]')"


@gin.configurable(module="meshtf.train")
class TensorBoard(Callback):
    """Writes the run's metrics as curves, its vectors as histograms, and its report and configuration as texts.

    They go into the run's `tensorboard/`, at the steps that `Training.log_every` selects, and after evaluations. When a
    resumed run repeats steps, only their new values are shown. Every training has this callback.
    """

    is_observer = True

    def __init__(self) -> None:
        self._writer: tf.summary.SummaryWriter | None = None

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            print(MISSING_TENSORBOARD)
            return
        folder = run.folder
        _write_start(folder.tensorboard, run.first_step + 1)
        self._writer = tf.summary.create_file_writer(str(folder.tensorboard))
        texts = {"report": folder.report, "configuration": folder.operative_config}
        self._write(run.first_step + 1, {}, {}, {n: path.read_text() for n, path in texts.items() if path.exists()})

    def on_step(self, run: Run, report: StepReport) -> None:
        if report.is_logged:
            self._write(report.step, report.values, report.vectors)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self._write(run.step, held_out_names(evaluation.means), held_out_names(evaluation.vectors))

    def on_end(self, run: Run, outcome: Outcome) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(
        self, step: int, scalars: Mapping[str, float], vectors: Vectors, texts: Mapping[str, str] | None = None
    ) -> None:
        """Writes values and flushes them. A vector [n] is one histogram, and [layers, n] one for each layer,
        `<name>/layer_000`.
        """
        if self._writer is None:
            return
        with self._writer.as_default(step=step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
            for name, x in vectors.items():
                for number, row in enumerate(np.atleast_2d(x)):
                    tf.summary.histogram(f"{name}/layer_{number:03}" if x.ndim > 1 else name, row)
            for name, text in (texts or {}).items():
                tf.summary.text(name, _indented(text))
        self._writer.flush()


def _indented(text: str) -> str:
    """Returns a text that Markdown shows with its line breaks and columns."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _write_start(folder: Path, step: int) -> None:
    """Makes TensorBoard discard the values that it has read for this step and later ones.

    TensorBoard obeys only from the second such event in a folder on, so a new run also writes one.
    """
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    # This file's name sorts before that of the next one, so TensorBoard reads it first. The writer needs a graph.
    with tf.Graph().as_default(), tf.compat.v1.summary.FileWriter(str(folder)) as writer:
        writer.add_session_log(start, step)
