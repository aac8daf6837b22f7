"""Quality at batches of 2,048, and of the tasks that meshtf-benchmark times. Each takes minutes."""

from __future__ import annotations

import gin
import pytest

from meshtf.train import Trainer
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.evaluation import Evaluation
from meshtf.train.training import configured_training

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def trained(name: str, *bindings: str) -> Evaluation:
    """Trains as a configuration says, and evaluates."""
    try:
        read_configuration([find_gin_file(name)], ["Training.mesh_shape = 'rows:2'", *bindings])
        training = configured_training()
    finally:
        gin.clear_config()
    trainer = Trainer(training)
    batches = trainer.batches()
    for _ in range(training.num_steps):
        trainer.train_step(**next(batches))
    evaluation = trainer.evaluate()
    assert evaluation is not None
    return evaluation


def test_a_residual_network_reads_the_digits() -> None:
    right, count = trained("digits_resnet.gin").sums["accuracy"]
    assert count == 360
    assert right >= 0.985 * 360


def test_large_batches_are_as_good_as_small_ones_with_lars_and_its_schedule_alone() -> None:
    small = trained(
        "letters_resnet.gin",
        *("ResNet.width = 8", "Training.num_steps = 1200", "PolynomialSchedule.num_steps = 1160"),
    )
    large = trained("letters_resnet_2048.gin")
    # The rate grows with the batch, and nothing else changes.
    plain = trained(
        "letters_resnet_2048.gin",
        *("Training.optimizer = @MomentumOptimizer()", "MomentumOptimizer.momentum = 0.9"),
        *("MomentumOptimizer.learning_rate = @PolynomialSchedule()", "PolynomialSchedule.num_steps = 150"),
    )
    assert large.means["accuracy"] >= small.means["accuracy"] - 0.005
    assert plain.means["accuracy"] < large.means["accuracy"] - 0.02
