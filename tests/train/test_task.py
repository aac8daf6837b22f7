from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.digits import digits
from meshtf.train.task import WEIGHTS, evaluation_batches, training_batches

FEATURES = {"x": np.arange(10, dtype=np.int32), "y": np.arange(20, dtype=np.float32).reshape(10, 2)}


def first_batches(count: int, seed: int = 0, first_step: int = 0, batch_size: int = 4) -> np.ndarray:
    batches = training_batches(FEATURES, batch_size, seed, first_step)
    return np.array([batch["x"] for batch in itertools.islice(batches.as_numpy_iterator(), count)])


def test_each_epoch_is_another_permutation() -> None:
    epochs = first_batches(15, batch_size=2).reshape(3, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_batches_depend_on_seed_and_position_alone() -> None:
    batches = first_batches(7)
    np.testing.assert_array_equal(batches, first_batches(7))
    np.testing.assert_array_equal(batches[5:], first_batches(2, first_step=5))
    assert (batches != first_batches(7, seed=1)).any()


def test_features_of_an_example_stay_together() -> None:
    batch = next(training_batches(FEATURES, 4, 0).as_numpy_iterator())
    np.testing.assert_array_equal(batch["y"], FEATURES["y"][batch["x"]])


def test_evaluation_sees_each_example_once_and_pads_with_weight_zero() -> None:
    batches = list(evaluation_batches(FEATURES, 4).as_numpy_iterator())
    assert [batch["y"].shape for batch in batches] == [(4, 2)] * 3
    weights = np.concatenate([batch[WEIGHTS] for batch in batches])
    seen = np.concatenate([batch["x"] for batch in batches])
    np.testing.assert_array_equal(seen[weights == 1], FEATURES["x"])
    assert weights.dtype == np.float32
    assert weights.sum() == 10


def test_evaluation_without_padding() -> None:
    assert [batch[WEIGHTS].min() for batch in evaluation_batches(FEATURES, 5).as_numpy_iterator()] == [1, 1]


def test_digits_are_split_by_their_pixels() -> None:
    task = digits(num_held_out=360)
    assert {name: array.shape for name, array in task.train.items()} == {"images": (1437, 64), "labels": (1437,)}
    assert len(task.held_out["labels"]) == 360
    assert task.train["images"].max() == 1
    held_out = {image.tobytes() for image in task.held_out["images"]}
    assert held_out.isdisjoint({image.tobytes() for image in task.train["images"]})
    # Which images these are must not change with a library's version: results would not compare.
    assert task.held_out["labels"][:12].tolist() == [2, 3, 3, 4, 8, 9, 5, 2, 6, 4, 4, 8]


def test_validation_examples_are_taken_from_the_training_part() -> None:
    whole, parts = digits(), digits(num_validation=287)
    train = {image.tobytes() for image in whole.train["images"]}
    assert len(parts.held_out["labels"]) == 287
    assert {image.tobytes() for part in (parts.train, parts.held_out) for image in part["images"]} == train


def test_digits_refuses_an_impossible_split() -> None:
    with pytest.raises(ConfigurationError, match=r"num_validation must be from 0 to 1436, and is 1437"):
        digits(num_validation=1437)
    with pytest.raises(ConfigurationError, match=r"num_held_out must be from 1 to 1796, and is 1797"):
        digits(num_held_out=1797)
