"""The synthetic click log: it repeats, its parts differ, and its labels follow its logits."""

from __future__ import annotations

import numpy as np
import pytest

from meshtf.train._ranked_scores import area_under_curve
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.click_log import ClickLog, click_log

SIZES = (50, 20, 3)


def test_the_log_repeats_and_each_part_is_another() -> None:
    first, again, other = (ClickLog(SIZES).examples(200, part) for part in (0, 0, 1))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert (array != other[name]).any()
    assert (ClickLog(SIZES, seed=1).examples(200, 0)["logits"] != first["logits"]).any()


def test_ids_are_in_their_tables_and_bags_of_all_lengths_occur() -> None:
    ids = ClickLog(SIZES, bag_size=2).examples(500, 0)["ids"]
    assert ids.min() == -1
    assert (ids.max((0, 2)) < SIZES).all()
    assert (ids.max((0, 2)) > np.array(SIZES) / 2).all()
    assert {*(ids >= 0).sum(2).ravel().tolist()} == {0, 1, 2}


def test_labels_follow_the_logits() -> None:
    made = ClickLog(SIZES).examples(20_000, 0)
    expected = 1 / (1 + np.exp(-made["logits"]))
    assert abs(made["labels"].mean() - expected.mean()) < 4 * 0.5 / np.sqrt(20_000)  # four standard deviations
    np.testing.assert_array_equal(ClickLog(SIZES).logits(made["numbers"], made["ids"]), made["logits"])


def test_the_task_tells_the_best_area_and_hides_the_logits() -> None:
    task = click_log(SIZES, num_train=100, num_held_out=400)
    held_out = ClickLog(SIZES).examples(400, 1)
    assert f"{area_under_curve(held_out['logits'], held_out['labels']):.4f}" in task.name
    assert set(task.train) == {"numbers", "ids", "labels"}
    # Pairs in order: 3 of 4, and one of equal scores, which counts as half.
    assert area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 1, 0, 1])) == 0.875


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigurationError, match="and two tables"):
        click_log((5,))
    with pytest.raises(ConfigurationError, match=r"click_log\.num_train must be a positive integer, and is 0"):
        click_log(SIZES, num_train=0)
