"""Calibration: the ranges of a model's activations on examples of its task."""

from __future__ import annotations

import itertools

import numpy as np

import meshtf as mtf
from meshtf.host_array import host_array
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.quantization import observed_inputs
from meshtf.train._model_metrics import model_metrics
from meshtf.train.configuration import ConfigurationError
from meshtf.train.side_program import side_program
from meshtf.train.training import Training

_NOTHING_OBSERVED = """\
the model has no kernel whose input can be quantized: only dense layers and projections of attention have one, and
experts and recurrent layers do not. Leave out --activations."""


def calibrated_ranges(
    training: Training, mesh_impl: MeshImpl, variables: mtf.VariableStore, num_batches: int
) -> dict[str, np.ndarray]:
    """Returns the largest magnitude of each kernel's input over the first training batches, by the kernel's name.

    Args:
      training: a training whose weights are not quantized.
      mesh_impl: the mesh.
      variables: the trained weights.
      num_batches: how many batches.

    Raises:
      ConfigurationError: if the model has no kernel whose input is quantized.
    """

    def observation(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        with observed_inputs() as ranges:
            model_metrics(training, features, is_training=False)
        if not ranges:
            raise ConfigurationError(_NOTHING_OBSERVED)
        return dict(ranges)

    program = side_program(observation, training, mesh_impl, variables)
    found: dict[str, np.ndarray] = {}
    for features in itertools.islice(training.task.training_batches(training.batch_size, training.seed), num_batches):
        for name, largest in program(**features).items():
            found[name] = np.maximum(found.get(name, 0.0), host_array(largest))
    return found
