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


NOISE = 2 * (2 * 0.995 * 0.005 / 936) ** 0.5
"""Two standard deviations of the difference of two accuracies of 0.995, each on its own 936 letters."""


def test_large_batches_are_as_good_as_small_ones_with_a_schedule_alone() -> None:
    """Each run goes 24 times through the letters."""
    small = trained(
        "letters_resnet.gin",
        *("ResNet.width = 8", "Training.num_steps = 2400", "PolynomialSchedule.num_steps = 2360"),
    ).means["accuracy"]
    large = trained("letters_resnet_2048.gin").means["accuracy"]
    constant = trained("letters_resnet_2048.gin", "LarsOptimizer.learning_rate = 1.6").means["accuracy"]
    assert small >= 0.98
    assert large >= small - NOISE
    assert constant < 0.5 * small
