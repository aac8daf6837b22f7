"""Batches of images: the same for any number of processes, after a resume, and from memory."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import (
    CentralCrop,
    ClassFolders,
    ColourJitter,
    CutMix,
    Flip,
    ImageArrays,
    ImageFormat,
    ImageRecords,
    ImageTask,
    Mixup,
    RandAugment,
)
from meshtf.train.data.fingerprints import differences
from meshtf.train.task import Batch, TaskByRows, TaskOfKnownData

BATCH, SEED = 4, 7


def arrays_of(batches: Iterable[Batch], count: int) -> list[dict[str, np.ndarray]]:
    return [{name: np.asarray(x) for name, x in batch.items()} for batch in itertools.islice(batches, count)]


def assert_equal(found: list[dict[str, np.ndarray]], expected: list[dict[str, np.ndarray]]) -> None:
    for one, other in zip(found, expected, strict=True):
        for name in other:
            np.testing.assert_array_equal(one[name], other[name])


def test_batches(arrays: ImageArrays) -> None:
    """Two processes make the rows of one, each its own; a resumed run goes on to the bit."""
    changes = (Flip(), ColourJitter())
    task = ImageTask(arrays, 2, ImageFormat(size=8), held_out=arrays, augmentations=changes)
    assert all(isinstance(task, protocol) for protocol in (TaskByRows, TaskOfKnownData))
    batches = task.training_batches(BATCH, SEED)
    first = arrays_of(batches, 2)
    position = batches.position
    rest = arrays_of(batches, 2)  # into the second epoch, for there are ten images

    assert_equal(arrays_of(task.training_batches(BATCH, SEED, position), 2), rest)
    parts = [arrays_of(task.training_rows(rows, BATCH, SEED), 2) for rows in (slice(0, 1), slice(1, 4), slice(0, 0))]
    own, others, none = parts
    assert not any(array.any() for batch in none for array in batch.values())
    assert not any(array[1:].any() for batch in own for array in batch.values())
    summed = [{name: x[name] + y[name] for name in x} for x, y in zip(own, others, strict=True)]
    assert_equal(summed, first)

    assert (first[0]["images"] != rest[0]["images"]).any()
    specs = task.inputs(mtf.Dimension("batch", BATCH))
    assert {n: (s.shape.to_integer_list, s.dtype.name) for n, s in specs.items()} == {
        n: (list(x.shape), x.dtype.name) for n, x in first[0].items()
    }


def test_a_file_whose_name_is_not_utf_8(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    content = (folder / "cat" / "0.jpg").rename(folder / "cat" / name).read_bytes()
    images = ClassFolders(str(folder)).images()
    (index,) = [number for number in range(images.count) if images.key(number) == f"cat/{name}"]
    image, label = images.read(tf.constant(index, tf.int64))
    assert (image.numpy(), int(label)) == (content, 0)


def test_a_cache_changes_nothing(folder: Path) -> None:
    source = ClassFolders(str(folder))
    task = ImageTask(source, 2, ImageFormat(size=8), held_out=source)
    first = arrays_of(task.training_batches(6, SEED), 2)  # into the second epoch
    assert_equal(arrays_of(dataclasses.replace(task, cache_decoded=True).training_batches(6, SEED), 2), first)


def test_rand_augment_draws_by_the_place_of_an_image(arrays: ImageArrays) -> None:
    """The second half of a batch, after a resume, is that of the undisturbed run."""
    task = ImageTask(arrays, 2, ImageFormat(size=8), held_out=arrays, augmentations=[RandAugment(num_layers=1)])
    whole = arrays_of(task.training_batches(BATCH, SEED), 2)[1]["images"]
    position = {"examples_taken": BATCH, "num_examples": 10}
    (own,) = arrays_of(task.training_rows(slice(2, 4), BATCH, SEED, position), 1)
    np.testing.assert_array_equal(own["images"][2:], whole[2:])


def test_gin(folder: Path) -> None:
    """A binding of the format counts without a reference to it; sources, crops and changes are references."""
    bindings = f"""
        import meshtf.train.data
        ImageTask.source = @ClassFolders()
        ClassFolders.folder = "{folder}"
        ImageTask.num_classes = 2
        ImageTask.held_out = 0.3
        ImageFormat.size = 5
        ImageTask.crop = @CentralCrop()
        CentralCrop.fraction = 1.0
        ImageTask.augmentations = [@Flip(), @ColourJitter()]
        ColourJitter.contrast = 0.1
        ImageTask.mixes = [@Mixup(), @CutMix()]
    """
    gin.parse_config(bindings)
    try:
        task = gin.get_configurable("ImageTask")()
    finally:
        gin.clear_config()
    assert task.format.size == 5
    assert task.augmentations == [Flip(), ColourJitter(contrast=0.1)]
    assert next(task.training_batches(2, SEED))["images"].shape == (2, 5, 5, 3)


def test_mixed_batches(pixels: Callable[..., np.ndarray]) -> None:
    """Pairs of places are mixed, whichever rows a process makes; labels are weights of the same images."""
    values = np.arange(6, dtype=np.uint8) * 40
    source = ImageArrays(np.broadcast_to(values[:, None, None, None], [6, 8, 8, 3]), np.arange(6))
    format_ = ImageFormat(8, mean=(0.0,), std=(1 / 255,))
    task = ImageTask(source, 6, format_, source, crop=CentralCrop(1.0), mixes=[Mixup(1.0), CutMix()])
    first = arrays_of(task.training_batches(6, SEED), 3)
    for batch in first:
        labels, images = batch["labels"], batch["images"]
        np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(images.mean((1, 2, 3)), labels @ values, rtol=0, atol=1e-3)
        np.testing.assert_allclose(labels.reshape(3, 2, 6).sum(axis=(0, 1)), 1, rtol=1e-6)
    assert all((labels > 0).sum(axis=1).max() == 2 for labels in (batch["labels"] for batch in first))
    parts = [arrays_of(task.training_rows(rows, 6, SEED), 3) for rows in (slice(0, 3), slice(3, 6))]
    assert_equal([{n: x[n] + y[n] for n in x} for x, y in zip(*parts, strict=True)], first)
    later = arrays_of(task.training_batches(6, SEED, {"examples_taken": 5, "num_examples": 6}), 1)[0]
    np.testing.assert_array_equal(later["images"][0], first[0]["images"][5])
    np.testing.assert_array_equal(later["images"][1:], first[1]["images"][:5])
    held_out = arrays_of(task.evaluation_rows(slice(0, 2), 4), 2)
    np.testing.assert_array_equal(held_out[1]["labels"], np.eye(6)[[4, 5, 0, 0]] * [[1], [1], [0], [0]])
    spec = task.inputs(mtf.Dimension("batch", 6))["labels"]
    assert (str(spec.shape), spec.dtype.name) == ("batch:6 classes:6", "float32")
    assert not arrays_of(task.training_rows(slice(0, 0), 6, SEED), 1)[0]["labels"].any()


def test_evaluation(pixels: Callable[..., np.ndarray]) -> None:
    """Every held-out image once, in order, as NumPy normalizes it; the last batch is padded."""
    images, labels = np.stack([pixels(6, 6, i) for i in range(5)]), np.arange(5) % 3
    source = ImageArrays(images, labels)
    task = ImageTask(source, 3, ImageFormat(6, mean=(0.5,), std=(0.25,)), source, evaluation_crop=CentralCrop(1.0))
    batches = arrays_of(task.evaluation_batches(2), 9)
    assert [batch["weights"].tolist() for batch in batches] == [[1, 1], [1, 1], [1, 0]]
    padded = np.concatenate([(images / 255 - 0.5) / 0.25, np.zeros([1, 6, 6, 3])])
    np.testing.assert_allclose(np.concatenate([batch["images"] for batch in batches]), padded, rtol=0, atol=1e-6)
    assert np.concatenate([batch["labels"] for batch in batches]).tolist() == [*labels, 0]
    for rows in (slice(1, 2), slice(0, 0)):
        for own, whole in zip(task.evaluation_rows(rows, 2), batches, strict=True):
            assert own["weights"].tolist() == whole["weights"].tolist()
            expected = np.zeros_like(whole["images"])
            expected[rows] = whole["images"][rows]
            np.testing.assert_array_equal(own["images"], expected)


def test_records(tmp_path: Path, write_records: Any, pixels: Any, jpeg_of: Any) -> None:
    """Records of several files are read by their number, and their labels count from 1. A hash holds some out."""
    for shard in range(2):
        path = tmp_path / f"train-0000{shard}-of-00002"
        write_records(path, [(jpeg_of(pixels(9 + i, 9, i)), 1 + shard) for i in range(8)])
    source = ImageRecords(str(tmp_path / "train-*"))
    task = ImageTask(source, 2, ImageFormat(size=8), held_out=source)
    held_out = arrays_of(task.evaluation_batches(16), 1)[0]
    assert held_out["labels"].tolist() == [0] * 8 + [1] * 8
    np.testing.assert_array_equal(held_out["images"][:8], held_out["images"][8:])
    split = dataclasses.replace(task, held_out=0.3)
    counts = [part["images"] for part in split.fingerprint().values()]
    assert sum(counts) == 16
    assert min(counts) > 0
    assert str(split).endswith(f"{counts[0]} images to train on, {counts[1]} held out")
    (repeated,) = differences(task.fingerprint(), dataclasses.replace(task, repeats=3).fingerprint())
    assert repeated.startswith("images to train on (")
    assert repeated.endswith("): repeats 1 then, 3 now")
    write_records(tmp_path / "train-00000-of-00002", [(jpeg_of(pixels(30, 9)), 1)] * 8)
    changed = differences(task.fingerprint(), dataclasses.replace(task).fingerprint())
    assert [line.partition(" (")[0] for line in changed] == ["images to train on", "held-out images"]


@pytest.mark.parametrize(
    ("options", "said"),
    {
        "a class": (
            {"source": ClassFolders},
            f"ImageTask.source is no ImageSource: {ClassFolders!r}; in gin @Name() makes one, parentheses included",
        ),
        "no augmentation": (
            {"augmentations": ["flip"]},
            "ImageTask.augmentations is no Augmentation: 'flip'; in gin @Name() makes one, parentheses included",
        ),
        "one augmentation": (
            {"augmentations": Flip()},
            "ImageTask.augmentations must be a list, and is Flip(); in gin [@Name(), @Another()] is one",
        ),
        "one mix": (
            {"mixes": Mixup()},
            "ImageTask.mixes must be a list, and is Mixup(alpha=0.2); in gin [@Name(), @Another()] is one",
        ),
        "share": (
            {"held_out": 1.5},
            "ImageTask.held_out must be a share of the images, in (0, 1), or a source, and is 1.5",
        ),
        "one class": ({"num_classes": 1}, "ImageTask.num_classes must be 2 or more, and is 1"),
    }.values(),
)
def test_impossible_options(options: dict[str, Any], said: str) -> None:
    given = {"source": ClassFolders("none"), "num_classes": 2, **options}
    with pytest.raises(ConfigurationError) as error:
        ImageTask(**given)
    assert str(error.value).splitlines()[0] == said


def test_classes_that_do_not_go_together(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    for name in ("cat", "eel"):
        (other / name).mkdir()
        (other / name / "0.png").write_bytes((folder / "cat" / "1.png").read_bytes())
    task = ImageTask(ClassFolders(str(folder)), 2, held_out=ClassFolders(str(other)))
    with pytest.raises(ConfigurationError, match=r"are cat, dog, and those of class folders .* are cat, eel, so") as e:
        task.fingerprint()
    assert str(e.value).endswith("ClassFolders.classes names the classes of both.")
    with pytest.raises(ConfigurationError, match=r"has 2 classes \(cat, dog\), and ImageTask.num_classes is 5"):
        ImageTask(ClassFolders(str(folder)), 5).fingerprint()
    with pytest.raises(ConfigurationError, match=r"none of 10 images in .* is held out: a hash of each name decides"):
        ImageTask(ClassFolders(str(folder)), 2, held_out=1e-9).fingerprint()
