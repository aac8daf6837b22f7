"""Calibration finds the largest activations of some batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train import Trainer, Training
from meshtf.train.calibration import calibrated_ranges
from meshtf.train.configuration import ConfigurationError


def test_ranges_are_the_largest_of_all_batches(tiny_training: Callable[..., Training]) -> None:
    training = tiny_training()
    trainer = Trainer(training)
    trainer.train_step.initialize()
    found = calibrated_ranges(training, trainer.mesh_impl, trainer.variables, 3)
    batches = itertools.islice(training.task.training_batches(training.batch_size, training.seed), 3)
    assert found["hidden/kernel"] == max(np.abs(np.asarray(batch["x"])).max() for batch in batches)
    assert 0 < found["out/kernel"] < 1, "the result of tanh"
    assert len(found) == 2


def test_a_model_without_such_products_is_told(tiny_training: Callable[..., Training]) -> None:
    class Scaled:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, mtf.Tensor]:
            x = features["x"]
            return {"loss": mtf.square(x * mtf.get_variable(x.mesh, "w", [], initializer=mtf.ones))}

    with pytest.raises(
        ConfigurationError, match="dense layers and projections of attention have one, and\nexperts and recur"
    ):
        calibrated_ranges(
            tiny_training(model=Scaled()), mtf.PlanMeshImpl("rows:2", "batch:rows"), mtf.VariableStore(), 1
        )
