"""Image files for the tests of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.data import ImageArrays

Write = Callable[[Path, Sequence[tuple[bytes, int]]], None]


def drawn(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Random pixels."""
    return np.random.default_rng(seed).integers(0, 256, [height, width, 3], np.uint8)


def jpeg(pixels: np.ndarray) -> bytes:
    return tf.io.encode_jpeg(pixels).numpy()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two folders of classes, with three JPEG and two PNG files each, all of other sizes."""
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for number in range(5):
            pixels = drawn(20 + 3 * number, 35 - 2 * number, 10 * label + number)
            ending, content = ("png", tf.io.encode_png(pixels).numpy()) if number % 2 else ("jpg", jpeg(pixels))
            (tmp_path / name / f"{number}.{ending}").write_bytes(content)
    return tmp_path


@pytest.fixture(scope="session")
def arrays() -> ImageArrays:
    """Ten images of two classes in memory: TensorFlow traces batches of files three times as long."""
    return ImageArrays(np.stack([drawn(20, 24, number) for number in range(10)]), np.arange(10) % 2)


@pytest.fixture(scope="session")
def write_records() -> Write:
    """Writes images and their labels, in ImageNet's layout."""

    def written(path: Path, examples: Sequence[tuple[bytes, int]]) -> None:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for image, label in examples:
                feature = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

    return written


@pytest.fixture(scope="session")
def pixels() -> Callable[..., np.ndarray]:
    return drawn


@pytest.fixture(scope="session")
def jpeg_of() -> Callable[[np.ndarray], bytes]:
    return jpeg
