from __future__ import annotations

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import printed_letters
from meshtf.train.data.printed_letters import HELD_OUT_FONTS, TRAIN_FONTS
from meshtf.train.digits import digits


def test_letters_are_drawn_in_fonts_that_training_does_not_share_with_evaluation() -> None:
    task = printed_letters(num_classes=3)
    assert not {*TRAIN_FONTS} & {*HELD_OUT_FONTS}
    assert task.train["images"].shape == (18 * 3 * 27, 16, 16, 1)
    assert task.held_out["images"].shape == (4 * 3 * 9, 16, 16, 1)
    for part in (task.train, task.held_out):
        assert np.bincount(part["labels"]).tolist() == [len(part["labels"]) // 3] * 3
        assert part["images"].min() == 0
        assert part["images"].max() <= 1
        assert (part["images"].max((1, 2, 3)) > 0.5).all()  # a letter is in each, and none runs over the border
        assert (part["images"].sum((1, 2, 3)) < 16 * 16 / 2).all()


@pytest.mark.parametrize("classes", [1, 27])
def test_there_are_26_letters(classes: int) -> None:
    with pytest.raises(ConfigurationError, match=f"from 2 to 26, and is {classes}"):
        printed_letters(classes)


def test_digits_are_the_same_pixels_as_images() -> None:
    flat, images = digits(), digits(as_images=True)
    np.testing.assert_array_equal(images.train["images"].reshape(-1, 64), flat.train["images"])
    assert str(images.shapes["images"]) == "height:8 width:8 channels:1"
