"""The order of images that are taken several times, and the batches that it makes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ClassFolders, ColourJitter, CutMix, Flip, ImageArrays, ImageFormat, ImageTask
from meshtf.train.data.images.image_order import ImageOrder


def order_of(order: ImageOrder, count: int) -> list[int]:
    return [int(order.index_at(tf.constant(place, tf.int64))) for place in range(count)]


def test_each_image_is_taken_so_often_before_others_and_never_beside_itself() -> None:
    """Pairs of neighbours are mixed: an image that is mixed with itself would not be mixed. Five images are no twos."""
    once, thrice = order_of(ImageOrder(5, seed=3), 10), order_of(ImageOrder(5, seed=3, repeats=3), 30)
    assert sorted(once[:5]) == sorted(once[5:]) == [*range(5)]
    twos = [once[begin : begin + 2] for begin in range(0, 10, 2)]
    assert thrice == [image for two in twos for image in two * 3]


def test_copies_of_an_image_get_other_changes_and_batches_keep_their_promises(arrays: ImageArrays) -> None:
    """A resumed run and two processes make the same batches, which are mixed here."""
    changes = (Flip(), ColourJitter())
    plain = ImageTask(arrays, 2, ImageFormat(size=8), held_out=arrays, augmentations=changes, repeats=2)
    first = next(plain.training_batches(6, 7))
    labels, images = np.asarray(first["labels"]), np.asarray(first["images"])
    np.testing.assert_array_equal(labels[:2], labels[2:4])  # a b a b
    assert (images[:2] != images[2:4]).any((1, 2, 3)).all()

    mixed = dataclasses.replace(plain, augmentations=(Flip(),), mixes=(CutMix(),))
    batches = mixed.training_batches(6, 7)
    next(batches)
    position = batches.position
    second = next(batches)
    resumed = next(mixed.training_batches(6, 7, position))
    halves = [next(mixed.training_rows(rows, 6, 7, position)) for rows in (slice(0, 3), slice(3, 6))]
    for name, expected in second.items():
        np.testing.assert_array_equal(resumed[name], expected)
        np.testing.assert_array_equal(halves[0][name] + halves[1][name], expected)


def test_a_bad_image_is_named_wherever_its_copies_are(folder: Path) -> None:
    source = ClassFolders(str(folder))
    bad = folder / "cat" / "2.jpg"
    bad.write_bytes(bad.read_bytes()[:100])
    task = ImageTask(source, 2, ImageFormat(size=8), held_out=source, repeats=4)
    batches = task.training_batches(4, 0)
    with pytest.raises(ConfigurationError, match=re.escape(str(bad))):
        [next(batches) for _ in range(10)]


@pytest.mark.parametrize("repeats", [0, 1.5])
def test_what_is_no_number_of_times_is_refused(folder: Path, repeats: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"ImageTask.repeats must be a whole number, 1 or more, and is (0|1.5)"
    ):
        ImageTask(ClassFolders(str(folder)), 2, repeats=repeats)  # type: ignore[arg-type]
