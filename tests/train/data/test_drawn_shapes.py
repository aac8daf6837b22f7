from __future__ import annotations

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import drawn_objects, drawn_regions


def test_boxes_are_round_the_pixels_of_their_shapes() -> None:
    options = {"size": 24, "max_objects": 1, "num_train": 30, "num_held_out": 2}
    objects, regions = drawn_objects(**options), drawn_regions(**options)
    np.testing.assert_array_equal(objects.train["images"], regions.train["images"])
    assert set(objects.train["labels"].ravel()) == {1, 2, 3}
    given = zip(objects.train["boxes"][:, 0], objects.train["labels"][:, 0], regions.train["labels"], strict=True)
    for box, label, pixels in given:
        rows, columns = np.nonzero(pixels)
        assert set(pixels[rows, columns]) == {label}
        drawn = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        assert (abs(drawn - box * 24) <= 1).all()  # the tip of a triangle may fall between two pixels


def test_examples_depend_on_the_seed_alone_and_parts_differ() -> None:
    first, again, other = (drawn_objects(16, num_train=4, num_held_out=4, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.train["images"], again.train["images"])
    assert (first.train["images"] != other.train["images"]).any()
    assert (first.train["images"] != first.held_out["images"]).any()
    assert (first.train["labels"][:, 0] > 0).all()


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match="drawn_regions needs a size of 8 or more"):
        drawn_regions(size=7)
    with pytest.raises(ConfigurationError, match="drawn_objects needs a size of 8 or more"):
        drawn_objects(num_train=0)
