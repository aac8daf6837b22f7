from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.array_task import ArrayTask
from meshtf.train.digits import digits
from meshtf.train.task import WEIGHTS, Position, Task, TaskByRows
from tests.house.sharpest import sharpest

FEATURES = {"x": np.arange(10, dtype=np.int32), "y": np.arange(20, dtype=np.float32).reshape(10, 2)}
SHAPES = {"x": mtf.Shape([]), "y": mtf.Shape([("pair", 2)])}
TASK = ArrayTask("numbers", SHAPES, FEATURES, FEATURES)


def first_batches(count: int, seed: int = 0, position: Position | None = None, batch_size: int = 4) -> np.ndarray:
    batches = TASK.training_batches(batch_size, seed, position)
    return np.array([batch["x"] for batch in itertools.islice(batches, count)])


def test_arrays_are_a_task() -> None:
    assert isinstance(TASK, Task)
    assert isinstance(TASK, TaskByRows)
    assert TASK.tokens_per_example is None
    assert TASK.vocabulary is None
    assert TASK.num_bytes(FEATURES) is None
    assert {name: str(spec.shape) for name, spec in TASK.inputs(mtf.Dimension("batch", 4)).items()} == {
        "x": str(mtf.Shape([("batch", 4)])),
        "y": str(mtf.Shape([("batch", 4), ("pair", 2)])),
    }


def test_each_epoch_is_another_permutation() -> None:
    epochs = first_batches(15, batch_size=2).reshape(3, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_batches_depend_on_seed_and_position_alone() -> None:
    batches = first_batches(7)
    np.testing.assert_array_equal(batches, first_batches(7))
    assert (batches != first_batches(7, seed=1)).any()


@pytest.mark.parametrize("num_processes", sharpest([1, 2, 4], [2]))
def test_rows_that_processes_make_are_those_of_whole_batches(num_processes: int) -> None:
    """Over the ends of epochs, and from a position."""
    each = 4 // num_processes
    shares = [slice(i * each, (i + 1) * each) for i in range(num_processes)]
    for position in (None, {"examples_taken": 6, "num_examples": 10}):
        made = [TASK.training_rows(rows, 4, 0, position) for rows in shares]
        for batch in itertools.islice(TASK.training_batches(4, 0, position), 7):
            for rows, part in zip(shares, map(next, made), strict=True):
                for name, value in batch.items():
                    expected = np.zeros_like(value)
                    expected[rows] = value[rows]
                    np.testing.assert_array_equal(part[name], expected)
        assert len({json.dumps(batches.position) for batches in made}) == 1


def test_a_process_may_have_no_row() -> None:
    """Where the batch does not divide, and its cores have padding alone."""
    batches = next(TASK.training_rows(slice(0, 0), 4, 0)), next(iter(TASK.evaluation_rows(slice(0, 0), 4)))
    for batch in batches:
        assert batch["y"].shape == (4, 2)
        assert not np.any(batch["y"])


def test_a_position_continues_after_the_batches_taken() -> None:
    """Those made ahead do not count; the epoch ends within the third batch."""
    batches = TASK.training_batches(4, seed=0)
    for _ in range(5):
        next(batches)
    position = json.loads(json.dumps(batches.position))
    np.testing.assert_array_equal(first_batches(4, position=position), first_batches(9)[5:])
    assert TASK.training_batches(4, seed=0, position=position).position == position


def test_the_order_is_the_same_for_ever() -> None:
    """Another would change every run that is resumed."""
    assert first_batches(3).tolist() == [[0, 9, 1, 8], [4, 5, 3, 6], [7, 2, 1, 8]]


@pytest.mark.parametrize("position", [{}, {"examples_taken": -1, "num_examples": 10}, {"examples_taken": 4}])
def test_what_is_no_position(position: Position) -> None:
    with pytest.raises(ConfigurationError, match=r'is no position in the data: it needs "examples_taken"'):
        TASK.training_batches(4, 0, position)


def test_a_position_in_other_data() -> None:
    with pytest.raises(ConfigurationError, match=r"a place in 11 examples, and the data have 10 now"):
        TASK.training_batches(4, 0, {"examples_taken": 4, "num_examples": 11})


def test_features_of_an_example_stay_together() -> None:
    batch = next(TASK.training_batches(4, 0))
    np.testing.assert_array_equal(batch["y"], FEATURES["y"][np.asarray(batch["x"])])


def test_evaluation_sees_each_example_once_and_pads_with_weight_zero() -> None:
    batches = list(TASK.evaluation_batches(4))
    assert [batch["y"].shape for batch in batches] == [(4, 2)] * 3
    weights = np.concatenate([batch[WEIGHTS] for batch in batches])
    seen = np.concatenate([batch["x"] for batch in batches])
    np.testing.assert_array_equal(seen[weights == 1], FEATURES["x"])
    assert weights.dtype == np.float32
    assert weights.sum() == 10


@pytest.mark.parametrize("num_processes", [1, 2, 4])
def test_held_out_rows_that_processes_make_are_those_of_whole_batches(num_processes: int) -> None:
    """In the last batch one process has no row that is not padding."""
    each = 4 // num_processes
    shares = [slice(i * each, (i + 1) * each) for i in range(num_processes)]
    made = [list(TASK.evaluation_rows(rows, 4)) for rows in shares]
    for number, batch in enumerate(TASK.evaluation_batches(4)):
        for rows, parts in zip(shares, made, strict=True):
            for name, value in batch.items():
                expected = value if name == WEIGHTS else np.zeros_like(value)
                expected[rows] = value[rows]
                np.testing.assert_array_equal(parts[number][name], expected)


def test_evaluation_without_padding() -> None:
    assert [batch[WEIGHTS].min() for batch in TASK.evaluation_batches(5)] == [1, 1]


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
