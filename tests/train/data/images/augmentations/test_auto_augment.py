"""AutoAugment's changes against Pillow's, and what it draws from a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import AutoAugment
from meshtf.train.data.images.augmentations.augmentation import Augmentation
from meshtf.train.data.images.augmentations.auto_augment import IMAGENET_POLICY
from meshtf.train.data.images.augmentations.changes import CHANGES

GREY = (128, 128, 128)
ANGLE, SLOPE = np.deg2rad(30 * 5 / 9), 0.3 * 5 / 9


def pillow_moved(image: Image.Image, matrix: np.ndarray) -> Image.Image:
    """A map from places to places, both counted from the middle of the image."""
    middle = np.array(image.size) / 2
    a, b, d, e = matrix.ravel()
    c, f = middle - matrix @ middle
    return image.transform(image.size, Image.Transform.AFFINE, (a, b, c, d, e, f), fillcolor=GREY)


def enhanced(kind: Any, factor: float) -> Any:
    return lambda image: kind(image).enhance(factor)


ROTATION = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
SHEAR = np.array([[1, SLOPE], [0, 1]])
FACTOR = 0.1 + 1.8 * 5 / 9
CASES: dict[str, tuple[Any, float]] = {
    "identity": (lambda image: image, 0),
    "auto_contrast": (ImageOps.autocontrast, 1),
    "equalize": (ImageOps.equalize, 0),
    "invert": (ImageOps.invert, 0),
    "posterize": (lambda image: ImageOps.posterize(image, 6), 0),  # 8 - 4 * 5 / 9, rounded
    "solarize": (lambda image: ImageOps.solarize(image, 114), 0),  # 256 * 4 / 9 is 113.8
    "colour": (enhanced(ImageEnhance.Color, FACTOR), 2),
    "contrast": (enhanced(ImageEnhance.Contrast, FACTOR), 2),
    "brightness": (enhanced(ImageEnhance.Brightness, FACTOR), 1),
    "sharpness": (enhanced(ImageEnhance.Sharpness, FACTOR), 2),
    "rotate": (lambda image: pillow_moved(image, ROTATION), 0),
    "shear_x": (lambda image: pillow_moved(image, SHEAR), 0),
    "shear_y": (lambda image: pillow_moved(image, SHEAR.T), 0),
    "translate_x": (lambda image: pillow_moved(image, np.eye(2)), 0),
    "translate_y": (lambda image: pillow_moved(image, np.eye(2)), 0),
}
"""What Pillow does at the level 5 to the positive side, and how far its whole numbers may be off."""


def drawn(augment: AutoAugment, image: np.ndarray, count: int) -> list[np.ndarray]:
    return [augment(tf.constant(image), tf.constant([3, i], tf.int64)).numpy() for i in range(count)]


@pytest.fixture
def image(pixels: Any) -> np.ndarray:
    """An image whose values are neither equally frequent nor go from 0 to 255, of more than 255 pixels."""
    return (pixels(40, 50) ** 2.0 / 300 + 20).round().astype(np.uint8)


def test_changes_are_those_of_pillow(image: np.ndarray) -> None:
    assert CASES.keys() == CHANGES.keys()
    for name, (account, bound) in CASES.items():
        if name.startswith("translate"):
            continue
        found = drawn(AutoAugment([[(name, 1.0, 5), ("identity", 1.0, 0)]]), image.astype(np.float32), 3)
        wanted = np.asarray(account(Image.fromarray(image)), np.float64)
        # A shear or a turn goes to either side. A place between two pixels may be rounded to either.
        off = min((np.abs(each - wanted) > bound + 1e-3).mean() for each in found)
        assert off <= (0.01 if bound == 0 and name in ("rotate", "shear_x", "shear_y") else 0), name
        assert name == "identity" or (found[0] != image).mean() > 0.2, name


def test_levels_go_over_the_ranges(image: np.ndarray) -> None:
    """Colour at level 0 keeps a tenth of it; at level 9 all values are solarized, and at level 0 none."""
    x = image.astype(np.float32)

    def once(name: str, level: int) -> np.ndarray:
        return drawn(AutoAugment([[(name, 1.0, level), ("identity", 0.0, 0)]]), x, 1)[0]

    grey = (x.astype(np.float64) * [0.299, 0.587, 0.114]).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(once("colour", 0), np.clip(grey + 0.1 * (x - grey), 0, 255), rtol=0, atol=1e-3)
    np.testing.assert_allclose(once("colour", 9), np.clip(grey + 1.9 * (x - grey), 0, 255), rtol=0, atol=1e-3)
    np.testing.assert_array_equal(once("solarize", 0), x)
    np.testing.assert_array_equal(once("solarize", 9), 255 - x)
    for level, kept in ((9, 0b11110000), (8, 0b11110000), (6, 0b11111000), (1, 0b11111111)):  # 4, 4.4, 5.3, 7.6 bits
        np.testing.assert_array_equal(once("posterize", level), image & kept)
    flat = np.full([7, 6, 3], 9, np.float32)
    for name in ("equalize", "sharpness"):
        np.testing.assert_allclose(drawn(AutoAugment([[(name, 1.0, 9)] * 2]), flat, 1)[0], flat, rtol=0, atol=1e-5)


def test_draws(image: np.ndarray) -> None:
    """Each step is taken with its probability, and each pair is drawn; the policy is the paper's."""
    x = image.astype(np.float32)
    pairs = [[("invert", 0.5, 0), ("identity", 1.0, 0)], [("identity", 1.0, 0), ("solarize", 1.0, 5)]]
    found = [each.tobytes() for each in drawn(AutoAugment(pairs), x, 120)]
    counts = [found.count(each.tobytes()) for each in (x, 255 - x)]
    assert all(12 <= count <= 48 for count in counts)  # 30 are expected, with a standard deviation of 5
    assert 40 <= len(found) - sum(counts) <= 80  # 60, of 5
    assert isinstance(AutoAugment(), Augmentation)
    assert (len(IMAGENET_POLICY), len({*IMAGENET_POLICY})) == (25, 20)
    both = [each.tobytes() for each in drawn(AutoAugment(), x, 60)]
    assert both[:5] == [each.tobytes() for each in drawn(AutoAugment(), x, 5)]
    assert len(set(both)) > 15


@pytest.mark.parametrize(
    ("policy", "said"),
    {
        "a name": ([[("colours", 0.5, 5), ("invert", 0.5, 5)]], r"\('colours', 0.5, 5\); did you mean \"colour\""),
        "a level": ([[("colour", 0.5, 10), ("invert", 0.5, 5)]], r"has \('colour', 0.5, 10\)"),
        "no pair": ([[("colour", 0.5, 5)]], r"has \[\('colour', 0.5, 5\)\]"),
        "no step": ([["colour", "invert"]], "has 'colour'"),
        "nothing": ([], "AutoAugment.policy is empty"),
    }.values(),
)
def test_wrong_policies(policy: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        AutoAugment(policy)
