"""Crops and changes of images, against NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import (
    CentralCrop,
    ColourJitter,
    CutMix,
    DistortedCrop,
    Flip,
    ImageFormat,
    Mixup,
    RandAugment,
    RandomErasing,
)
from meshtf.train.data.images.augmentations import pixel_operations
from meshtf.train.data.images.augmentations.augmentation import Augmentation
from meshtf.train.data.images.augmentations.changes import CHANGES
from meshtf.train.data.images.augmentations.crops import Crop
from meshtf.train.data.images.augmentations.mixes import Mix
from meshtf.train.data.images.augmentations.rand_augment import NAMES

ULP = 255 * 2.0**-22
"""A few roundings of float32 values up to 255."""


def seed(number: int) -> tf.Tensor:
    return tf.constant([3, number], tf.int64)


def mapped(fn: Callable[[tf.Tensor], Any], seeds: tf.Tensor) -> Any:
    """What a function of one seed gives for each, in one graph: eager loops take ten times as long."""
    signature = tf.nest.map_structure(lambda x: x.dtype, fn(seeds[0]))
    return tf.function(lambda: tf.map_fn(fn, seeds, fn_output_signature=signature))()


@pytest.fixture
def image(pixels: Any) -> np.ndarray:
    return pixels(6, 6).astype(np.float32)


def test_central_crop() -> None:
    """A square of 0.875 of the shorter side, 16: 14 pixels, and 1 and 7 pixels before it."""
    assert isinstance(CentralCrop(), Crop)
    assert CentralCrop().window(tf.constant([16, 28, 3]), seed(0)).numpy().tolist() == [1, 7, 14, 14]
    with pytest.raises(ConfigurationError, match=r"CentralCrop.fraction must be in \(0, 1\], and is 1.5"):
        CentralCrop(1.5)


def test_distorted_crop() -> None:
    """Windows are inside the image, in the ranges of area and ratio up to whole pixels, and depend on the seed."""
    crop = DistortedCrop(area=(0.25, 0.5), aspect_ratio=(1.0, 2.0))
    shape = tf.constant([100, 120, 3])
    seeds = tf.stack([seed(i) for i in range(100)])
    windows = mapped(lambda each: crop.window(shape, each), seeds).numpy()
    top, left, height, width = windows.T
    assert (windows >= 0).all()
    assert (top + height <= 100).all()
    assert (left + width <= 120).all()
    areas, ratios = height * width / 12000, width / height
    assert 0.24 < areas.min() < 0.3 < 0.45 < areas.max() < 0.51
    assert 0.97 < ratios.min() < 1.1 < 1.5 < ratios.max() < 2.06
    np.testing.assert_array_equal(crop.window(shape, seed(5)), windows[5])
    with pytest.raises(ConfigurationError, match=r"DistortedCrop.area must be two ascending numbers above 0 and to 1,"):
        DistortedCrop(area=(0.5, 0.1))
    with pytest.raises(ConfigurationError, match=r"DistortedCrop.attempts must be 1 or more, and is 0"):
        DistortedCrop(attempts=0)


def test_flip(image: np.ndarray) -> None:
    found = [Flip()(tf.constant(image), seed(i)).numpy() for i in range(20)]
    flipped = [np.array_equal(each, image[:, ::-1]) for each in found]
    assert all(is_flipped or np.array_equal(each, image) for is_flipped, each in zip(flipped, found, strict=True))
    assert 3 <= sum(flipped) <= 17  # beyond it with a probability of 0.0004


def test_colours(image: np.ndarray) -> None:
    """Each is a mean of the image and of black, its mean grey, or its own greys, with the factor as a weight."""
    grey = (image.astype(np.float64) * [0.299, 0.587, 0.114]).sum(axis=-1, keepdims=True)
    bases = {"brightness": 0.0, "contrast": grey.mean(), "saturation": grey}
    for name, base in bases.items():
        change = getattr(pixel_operations, name)
        for factor in (0.0, 0.6, 1.0, 1.7):
            expected = np.clip(base + (image - base) * factor, 0, 255)
            np.testing.assert_allclose(change(image, factor), expected, rtol=0, atol=4 * ULP)
    np.testing.assert_array_equal(ColourJitter(0.0, 0.0, 0.0)(tf.constant(image), seed(0)).shape, image.shape)
    dimmed = ColourJitter(0.5, 0.0, 0.0)(tf.constant(image) / 2, seed(0)).numpy()
    factors = dimmed[image > 0] / (image / 2)[image > 0]
    assert np.ptp(factors) < 1e-4
    assert 0.5 <= factors.mean() <= 1.5
    one_channel = tf.constant(image[..., :1])
    np.testing.assert_allclose(pixel_operations.saturation(one_channel, 0.2), one_channel, rtol=0, atol=ULP)
    with pytest.raises(ConfigurationError, match=r"ColourJitter.contrast must be from 0 to 1, and is 2"):
        ColourJitter(contrast=2)


def test_values(image: np.ndarray) -> None:
    least, most = image.min((0, 1)), image.max((0, 1))
    stretched = (image.astype(np.float64) - least) * 255 / (most - least)
    np.testing.assert_allclose(pixel_operations.auto_contrast(image), stretched, rtol=0, atol=4 * ULP)
    flat = tf.fill([2, 2, 3], 9.0)
    np.testing.assert_array_equal(pixel_operations.auto_contrast(flat), flat)
    np.testing.assert_array_equal(pixel_operations.posterized(image, 3), image.astype(np.uint8) & 0b11100000)
    solarized = np.where(image < 100, image, 255 - image)
    np.testing.assert_array_equal(pixel_operations.solarized(image, 100.0), solarized)


def test_moves(image: np.ndarray) -> None:
    """A strength of 3 rotates by 90 degrees. A translation by 2.7, rounded to 3 pixels, leaves grey behind."""
    x, one = tf.constant(image), tf.constant(1.0)
    np.testing.assert_array_equal(CHANGES["rotate"](x, 3 * one, one), np.rot90(image))
    np.testing.assert_array_equal(CHANGES["rotate"](x, 3 * one, -one), np.rot90(image, -1))
    grey = np.full([6, 3, 3], pixel_operations.FILL, np.float32)
    moved = np.concatenate([image[:, 3:], grey], axis=1)
    np.testing.assert_array_equal(CHANGES["translate_x"](x, one, one), moved)
    down = np.concatenate([grey.transpose(1, 0, 2), image[:-3]], axis=0)
    np.testing.assert_array_equal(CHANGES["translate_y"](x, one, -one), down)
    sheared = CHANGES["shear_x"](x[:5, :5], one / 0.3, one).numpy()  # by a column for each row, from the middle
    np.testing.assert_array_equal(sheared[0, 2:], image[0, :3])
    np.testing.assert_array_equal(sheared[2], image[2, :5])


def test_rand_augment(image: np.ndarray) -> None:
    """Every change keeps the shape and the range; over many seeds all are drawn, and a seed draws the same again."""
    augment = RandAugment(num_layers=1, magnitude=5)
    assert isinstance(augment, Augmentation)
    x = tf.constant(image)
    drawn = mapped(lambda each: augment(x, each), tf.stack([seed(i) for i in range(250)]))
    found = {each.tobytes() for each in drawn.numpy()}
    single = ("identity", "auto_contrast", "equalize", "posterize", "solarize")
    signs = {name: (-1.0,) if name in single else (-1.0, 1.0) for name in NAMES}
    every = [(change, sign) for name, change in CHANGES.items() for sign in signs.get(name, ())]

    @tf.function
    def all_changes(half: tf.Tensor, one: tf.Tensor) -> list[tf.Tensor]:
        return [change(x, half, sign * one) for change, sign in every]

    assert found == {each.numpy().tobytes() for each in all_changes(tf.constant(0.5), tf.constant(1.0))}
    np.testing.assert_array_equal(RandAugment(0)(x, seed(1)), image)
    with pytest.raises(ConfigurationError, match=r"RandAugment.magnitude must be from 0 to 10, and is 11"):
        RandAugment(magnitude=11)
    with pytest.raises(ConfigurationError, match=r"RandAugment.num_layers must be 0 or more, and is -1"):
        RandAugment(num_layers=-1)


def test_random_erasing() -> None:
    """A quarter of the images lose a window, of the areas and aspect ratios that were asked for, to random values."""
    erase = RandomErasing()
    assert isinstance(erase, Augmentation)
    seeds, image = tf.stack([seed(i) for i in range(200)]), -tf.ones([40, 60, 3])
    images = mapped(lambda each: erase(image, each), seeds).numpy()
    lost = (images >= 0).all(-1)
    assert (lost == (images >= 0).any(-1)).all()
    erased = [*filter(np.any, lost)]
    assert abs(len(erased) - 50) < 4 * (200 * 0.25 * 0.75) ** 0.5
    for each in erased:
        rows, columns = each.any(1), each.any(0)
        np.testing.assert_array_equal(each, rows[:, None] & columns)
        height, width = rows.sum(), columns.sum()
        assert 0.3 * (height - 1) <= width + 1
        assert 0.3 * (width - 1) <= height + 1
        assert (height + 1) * (width + 1) >= 0.02 * 2400
        assert (height - 1) * (width - 1) <= 2400 / 3
    values = images[lost]
    assert abs(values.mean() - 127.5) < 4 * 255 / (12 * values.size) ** 0.5
    np.testing.assert_array_equal(RandomErasing(1.0)(image, seed(3)), RandomErasing(1.0)(image, seed(3)))
    np.testing.assert_array_equal(RandomErasing(1.0)(image[:1, :1], seed(3)), image[:1, :1])
    with pytest.raises(ConfigurationError, match=r"RandomErasing\.probability must be from 0 to 1, and is 2"):
        RandomErasing(2)
    with pytest.raises(ConfigurationError, match=r"RandomErasing\.area must be two ascending numbers above 0 and to 1"):
        RandomErasing(area=(0.5, 0.2))


def test_mixes() -> None:
    """The shares are those of the pixels. Beta(1, 1) is uniform, and Beta(0.1, 0.1) is mostly near 0 or 1."""
    pair = tf.stack([tf.zeros([8, 8, 1]), tf.ones([8, 8, 1])])
    seeds = tf.stack([seed(i) for i in range(200)])
    for mix in (Mixup(1.0), CutMix(1.0)):
        assert isinstance(mix, Mix)
        images, own = mapped(functools.partial(mix.mixed, pair), seeds)
        np.testing.assert_allclose(tf.reduce_mean(images, axis=[2, 3, 4]), tf.stack([1 - own, own], 1), atol=1e-6)
        assert 0.3 < np.mean(own) < 0.8
    extreme = mapped(lambda each: Mixup(0.1).mixed(pair, each)[1], seeds).numpy()
    assert np.isfinite(extreme).all()
    assert np.mean((extreme < 0.1) | (extreme > 0.9)) > 0.6  # 0.8 is expected
    for kind in (Mixup, CutMix):
        with pytest.raises(ConfigurationError, match=rf"{kind.__name__}.alpha must be above 0, and is 0"):
            kind(0)


@pytest.mark.parametrize(
    ("options", "said"),
    {
        "size": ({"size": 0}, "ImageFormat.size must be 1 or more, and channels 1 or 3, and they are 0 and 3"),
        "mean": (
            {"channels": 1},
            r"ImageFormat.mean must be one number or 1, one for each channel, and is \(0.485, 0.456, 0.406\)",
        ),
        "std": ({"std": (0.0,)}, "ImageFormat.std must be one number or 3, one for each channel, above 0, and is"),
    }.values(),
)
def test_impossible_formats(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ImageFormat(**options)
