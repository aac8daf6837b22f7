"""Images that cannot be used are named, or skipped and counted; unusual ones are decoded rightly."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import CentralCrop, ClassFolders, ImageArrays, ImageFormat, ImageRecords, ImageTask
from meshtf.train.data.images.decoding import decoded, decoded_window
from meshtf.train.data.images.source import Images

FORMAT = ImageFormat(size=8)

CMYK = base64.b64decode(
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAIBgYHBgUIBwcHCQkICgwUDQwLCwwZEhMPFB0aHx4dGhwcICQuJyAiLCMcHCg3KSwwMTQ0NB8nOT04Mjwu"
    "MzQy/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQAAIBAwMCBAMFBQQEAAABfQECAwAE"
    "EQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6"
    "g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TFxsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/aAA4EQwBNAFkA"
    "SwAAPwD5/r3+vf67+v/Z"
)
"""A JPEG of 8 x 8 pixels in four inks: cyan 255, magenta 0, yellow 0, black 64."""

ADVICE = "\nRepair or remove it, or skip bad images with ImageTask.skip_bad_images = True."


def task_of(folder: Path, **options: Any) -> ImageTask:
    source = ClassFolders(str(folder))
    whole = CentralCrop(1.0)  # all lines of the smaller side, so that a cut is met
    return ImageTask(source, 2, FORMAT, held_out=source, crop=whole, evaluation_crop=whole, **options)


def trained_on(task: ImageTask, steps: int = 3) -> None:
    batches = task.training_batches(5, seed=0)
    for _ in range(steps):
        next(batches)


@pytest.fixture
def bad(folder: Path) -> Path:
    """A truncated JPEG."""
    path = folder / "dog" / "2.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    return path


@pytest.mark.parametrize("cache_decoded", [False, True])
def test_truncated(folder: Path, bad: Path, cache_decoded: bool) -> None:
    task = task_of(folder, cache_decoded=cache_decoded)
    said = f"{bad}: the image cannot be decoded: jpeg::Uncompress failed. Invalid JPEG data or crop window{ADVICE}"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}$"):
        trained_on(task)
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}$"):
        list(task.evaluation_batches(4))


def test_skipped(folder: Path, bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next good image stands in for a bad one in training; an evaluation leaves it out. Each is counted once."""
    (folder / "cat" / "1.png").write_bytes(b"no image")
    task = task_of(folder, skip_bad_images=True)
    trained_on(task, steps=6)  # three epochs
    assert task.num_skipped == 2
    weights = [batch["weights"].tolist() for batch in task.evaluation_batches(6)]
    assert weights == [[1] * 6, [1, 1, 0, 0, 0, 0]]
    out = capsys.readouterr().out
    assert f"{folder / 'cat' / '1.png'}: the image cannot be decoded: Unknown image file format" in out
    assert f"{bad}: the image cannot be decoded" in out
    assert out.count("2 bad images skipped so far") == 2, "once in training, and once of the held-out images"
    whole = next(task.training_batches(10, seed=0))
    part = next(task.training_rows(slice(3, 10), 10, seed=0))
    np.testing.assert_array_equal(np.asarray(part["images"])[3:], np.asarray(whole["images"])[3:])


def test_all_are_bad(folder: Path) -> None:
    for path in folder.glob("*/*"):
        path.write_bytes(b"")
    task = task_of(folder, skip_bad_images=True)
    with pytest.raises(ConfigurationError, match=r"Input is empty\nThe images after it are bad, too: 10 in a row"):
        trained_on(task)
    with pytest.raises(ConfigurationError, match=r"all 10 held-out images of .* are bad, so there is nothing"):
        next(iter(task.evaluation_batches(4)))


def test_wrong_labels(tmp_path: Path, write_records: Any, pixels: Any, jpeg_of: Any) -> None:
    path = tmp_path / "birds.tfrecord"
    image = jpeg_of(pixels(9, 9))
    write_records(path, [(image, 1), (image, 2), (image, 3)])
    task = ImageTask(ImageRecords(str(path)), 2, FORMAT, held_out=ImageRecords(str(path)))
    said = f"{path}, record 3: its label is 2, but labels go from 0 to 1 (ImageTask.num_classes){ADVICE}"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}$"):
        trained_on(task, steps=1)
    arrays = ImageArrays(np.zeros([2, 8, 8, 3], np.uint8), np.array([0, -1]), "zeros")
    with pytest.raises(ConfigurationError, match=r"^zeros, image 1: its label is -1, but labels go from 0 to 1"):
        list(ImageTask(arrays, 2, FORMAT, held_out=arrays).evaluation_batches(2))


def test_files_that_go_away(tmp_path: Path, write_records: Any, pixels: Any, jpeg_of: Any) -> None:
    path = tmp_path / "birds.tfrecord"
    write_records(path, [(jpeg_of(pixels(9, 9)), 1)] * 2)
    task = ImageTask(ImageRecords(str(path)), 2, FORMAT, held_out=ImageRecords(str(path)))
    assert task.num_training_examples == 2
    path.unlink()
    with pytest.raises(ConfigurationError, match=r"record \d: the image cannot be read: No such file or directory"):
        trained_on(task, steps=1)


def test_wrong_arrays() -> None:
    said = re.escape("was given [2, 8, 8] of uint8 and [2] of int64")
    with pytest.raises(ConfigurationError, match=said):
        ImageArrays(np.zeros([2, 8, 8], np.uint8), np.array([0, 1]))


def test_four_inks() -> None:
    """CMYK becomes red, green and blue, each 255 less its ink, times 1 less black: here 0, 191 and 191."""
    found = decoded(tf.constant(CMYK), 3).numpy()
    assert found.shape == (8, 8, 3)
    np.testing.assert_allclose(found, np.broadcast_to([0, 191, 191], found.shape), rtol=0, atol=2)


def test_sizes(jpeg_of: Callable[[np.ndarray], bytes]) -> None:
    """An image of one pixel, of one line, and of 20 megapixels. All their pixels are the same."""
    sizes = ((1, 1), (1, 50), (5000, 4000))
    source = _Files([jpeg_of(np.full([height, width, 3], 128, np.uint8)) for height, width in sizes])
    task = ImageTask(source, 2, FORMAT, held_out=source)
    for batch in (next(task.training_batches(3, seed=0)), next(iter(task.evaluation_batches(3)))):
        found = np.asarray(batch["images"])
        expected = np.full([3, 8, 8, 3], 128 / 255)
        np.testing.assert_allclose(found * FORMAT.std + FORMAT.mean, expected, rtol=0, atol=1e-5)


class _Files:
    """A source of the contents of some files."""

    def __init__(self, contents: list[bytes]) -> None:
        self._contents = contents

    def images(self) -> Images:
        label = tf.constant(1, tf.int64)
        return Images(len(self._contents), lambda index: (tf.gather(self._contents, index), label), str, str, "")


def test_a_window_of_a_jpeg_is_a_part_of_the_whole(pixels: Any, jpeg_of: Any) -> None:
    image = tf.constant(jpeg_of(pixels(60, 50)))
    part = decoded_window(image, lambda _: tf.constant([7, 13, 31, 22]), 3)
    np.testing.assert_array_equal(part, decoded(image, 3)[7:38, 13:35])


def test_other_kinds(pixels: Any) -> None:
    """Transparency is dropped, palettes are looked up, 16 bits become 8, and of pictures that move the first counts.
    Each file also becomes grey, which most kernels do not make. Pillow writes the files.
    """
    colours = pixels(6, 5)
    image = PIL.Image.fromarray(colours)
    grey, few = image.convert("L"), image.convert("P", palette=PIL.Image.Palette.ADAPTIVE, colors=8)
    wide = PIL.Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    moving = {"save_all": True, "append_images": [PIL.Image.fromarray(255 - colours).convert("P")]}
    files = [
        *((kind, image, image) for kind in ("PNG", "BMP", "WEBP")),
        *((kind, few, few) for kind in ("PNG", "BMP", "GIF")),
        *((kind, grey, grey) for kind in ("PNG", "BMP", "GIF")),
        *((kind, image.convert("RGBA"), image) for kind in ("PNG", "BMP")),
        ("PNG", image.convert("1"), image.convert("1")),
        ("PNG", wide, grey),
    ]
    for kind, given, shown in files:
        options = {"lossless": True} if kind == "WEBP" else moving if given is few and kind != "BMP" else {}
        given.save(file := io.BytesIO(), kind, **options)
        for channels, mode in ((3, "RGB"), (1, "L")):
            expected = np.asarray(shown.convert(mode)).reshape(6, 5, channels).astype(int)
            found = decoded(tf.constant(file.getvalue()), channels).numpy()
            np.testing.assert_allclose(found, expected, rtol=0, atol=channels == 1, err_msg=f"{kind} {given.mode}")
    assert decoded(tf.constant(CMYK), 1).numpy().tolist() == [[[134]] * 8] * 8  # 0.701 times 191


def test_webp_with_transparency_and_webp_that_moves(pixels: Any) -> None:
    """TensorFlow's kernel refuses the first, and ends the process at a picture that moves without transparency."""
    colours = pixels(6, 5)
    for mode in ("RGB", "RGBA"):
        first, second = (PIL.Image.fromarray(x).convert(mode) for x in (colours, 255 - colours))
        for options in ({}, {"save_all": True, "append_images": [second]}):
            first.save(file := io.BytesIO(), "WEBP", lossless=True, **options)
            np.testing.assert_array_equal(decoded(tf.constant(file.getvalue()), 3), colours)
            with pytest.raises(tf.errors.InvalidArgumentError, match="WebP"):
                decoded(tf.constant(file.getvalue()[:31]), 3)


def test_a_palette_that_is_cut_short() -> None:
    image = PIL.Image.fromarray(np.zeros([6, 5], np.uint8)).convert("P")
    image.save(file := io.BytesIO(), "BMP")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input size should match"):
        decoded(tf.constant(file.getvalue()[:201]), 3)
