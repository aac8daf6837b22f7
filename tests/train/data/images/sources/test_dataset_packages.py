"""Images of Hugging Face's `datasets` and of TensorFlow Datasets, which the packages themselves have written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import HuggingFaceImages, ImageFormat, ImageTask, TensorflowDatasetImages
from meshtf.train.data.images.source import Images

LABELS = [0, 1, 1, 0, 1]


def read(images: Images) -> tuple[list[bytes], list[int]]:
    """All images and their labels, eagerly and in a function of tf.data, which must be equal."""
    eager = [images.read(tf.constant(i, tf.int64)) for i in range(images.count)]
    mapped = [*tf.data.Dataset.range(images.count).map(images.read)]
    found = [[(image.numpy(), int(label)) for image, label in each] for each in (eager, mapped)]
    assert found[0] == found[1]
    return [image for image, _ in found[0]], [label for _, label in found[0]]


def batch_of(source: Any) -> np.ndarray:
    task = ImageTask(source, 2, ImageFormat(size=8), held_out=source)
    next(iter(task.evaluation_batches(2)))
    return np.asarray(next(task.training_batches(3, seed=0))["images"])


@pytest.fixture(scope="module")
def package() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return pytest.importorskip("datasets")


def test_huggingface_images(package: Any, tmp_path: Path, pixels: Any, jpeg_of: Any) -> None:
    """Rows of two files; the last image was a file of its own. A row without an image is named."""
    images = [jpeg_of(pixels(9 + i, 12, i)) for i in range(5)]
    (tmp_path / "4.jpg").write_bytes(images[4])
    rows = [{"bytes": image, "path": None} for image in images[:4]]
    rows.append({"bytes": None, "path": str(tmp_path / "4.jpg")})
    features = package.Features(pixels=package.Image(), kind=package.ClassLabel(names=["cat", "dog"]))
    made = package.Dataset.from_dict({"pixels": rows, "kind": LABELS}, features=features)
    package.DatasetDict(train=made).save_to_disk(str(tmp_path / "pets"), num_shards={"train": 2})

    source = HuggingFaceImages(str(tmp_path / "pets"), "train", "pixels", "kind")
    found = source.images()
    assert read(found) == (images, LABELS)
    assert found.class_names == ("cat", "dog")
    assert found.place(3) == f"{tmp_path}/pets/train/data-00001-of-00002.arrow, row 1"
    assert batch_of(source).shape == (3, 8, 8, 3)
    assert len({found.key(i) for i in range(5)}) == 5
    nothing = package.Dataset.from_dict({"pixels": [rows[0], None], "kind": [0, 1]}, features=features)
    nothing.save_to_disk(str(tmp_path / "nothing"))
    without = HuggingFaceImages(str(tmp_path / "nothing"), image="pixels", label="kind")
    with pytest.raises(ConfigurationError, match=r"00000-of-00001.arrow, row 2: the image cannot be decoded: "):
        [*ImageTask(without, 2, ImageFormat(size=8), held_out=without).evaluation_batches(2)]

    names = {"split": "train", "image": "pixels", "label": "kind"}
    for change, said in (
        (
            {"label": "kinds"},
            r'has no column "kinds", only kind, pixels; did you mean "kind"\?\nHuggingFaceImages.label',
        ),
        ({"image": "kind"}, r'the column "kind" holds int64, and no images; cast it with'),
        ({"label": "pixels"}, r'the column "pixels" holds struct<.*>, and must hold a whole number in each row'),
        ({"split": "test"}, r"has the splits train, and HuggingFaceImages.split is 'test'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            HuggingFaceImages(source.path, **(names | change)).images()
    package.Dataset.from_dict({"pixels": [], "kind": []}, features=features).save_to_disk(str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"images of .*none: there is no row"):
        HuggingFaceImages(str(tmp_path / "none"), image="pixels", label="kind").images()
    folder = (tmp_path / "pets").rename(tmp_path / os.fsdecode(b"p\xe9ts"))  # not UTF-8
    assert read(HuggingFaceImages(str(folder), "train", "pixels", "kind").images()) == (images, LABELS)


def test_tensorflow_datasets(tmp_path: Path, pixels: Any) -> None:
    """A data set in two files; a part of a split begins in the middle of a file."""
    package = pytest.importorskip("tensorflow_datasets")
    kinds = {
        "image": package.features.Image(shape=(None, None, 3)),
        "label": package.features.ClassLabel(num_classes=2),
    }
    arrays = np.stack([pixels(9, 12, i) for i in range(5)])
    package.dataset_builders.store_as_tfds_dataset(
        name="pets",
        version="1.0.0",
        data_dir=str(tmp_path),
        features=package.features.FeaturesDict(kinds),
        split_datasets={"train": tf.data.Dataset.from_tensor_slices({"image": arrays, "label": LABELS})},
        download_config=package.download.DownloadConfig(num_shards=2),
    )
    source = TensorflowDatasetImages("pets", data_dir=str(tmp_path))
    found = source.images()
    images, labels = read(found)
    stored = [*package.as_numpy(package.load("pets", split="train", data_dir=str(tmp_path), shuffle_files=False))]
    assert labels == [example["label"] for example in stored]
    for image, example in zip(images, stored, strict=True):
        np.testing.assert_array_equal(tf.io.decode_png(image), example["image"])
    assert found.class_names == ("0", "1")
    part = TensorflowDatasetImages("pets", "train[1:4]", data_dir=str(tmp_path)).images()
    assert read(part) == (images[1:4], labels[1:4])
    assert [part.place(i) for i in range(3)] == [found.place(i) for i in range(1, 4)]
    assert found.place(1).startswith(f"{tmp_path}/pets/1.0.0/pets-train.tfrecord-0000")
    assert batch_of(source).shape == (3, 8, 8, 3)
    for options, said in (
        ({"split": "trian"}, r'cannot load "pets" \(trian\): Unknown split'),
        ({"dataset": "petz"}, r'cannot load "petz" \(train\): Dataset petz not found'),
        ({"image": "images"}, r'have no image "images", only image \(Image\), label \(ClassLabel\); did you mean'),
    ):
        with pytest.raises(ConfigurationError, match=said):
            TensorflowDatasetImages(**{"dataset": "pets", "data_dir": str(tmp_path)} | options).images()
