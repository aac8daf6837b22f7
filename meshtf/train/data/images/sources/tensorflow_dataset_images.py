"""Data sets of images in TensorFlow Datasets, by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.source import Images
from meshtf.train.data.images.sources.file_parts import FileParts
from meshtf.train.data.images.sources.image_records import record_parts
from meshtf.train.data.packages.prepared_dataset import import_tensorflow_datasets, loading

_OTHER_FORMAT = """\
"{dataset}" is stored as {format}, and images are read in any order from TFRecord files only.
Prepare it again with file_format="tfrecord", in another folder (TensorflowDatasetImages.data_dir)."""
_NO_FEATURE = """\
the examples of "{dataset}" have no {kind} "{feature}", only {known}{hint}
TensorflowDatasetImages.{option} says which feature is the {option}."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TensorflowDatasetImages:
    """Images and labels of a data set in TensorFlow Datasets, in the order in which it is stored.

    The package finds the files, and downloads and prepares the data set if it is missing. Images are then read from the
    TFRecord files, in any order.

    Attributes:
      dataset: its name, as "imagenette/160px".
      split: the split as TensorFlow Datasets writes it, "train" or "train[:10%]".
      image: the name of the feature that is the image.
      label: the name of the feature that is the label.
      data_dir: the folder of data sets. The default is that of TensorFlow Datasets.

    Raises:
      ConfigurationError: when images are first needed: if TensorFlow Datasets is not installed, does not know the data
        set or cannot prepare it, or if it is stored in another format, or has no such image or label.
    """

    dataset: str
    split: str = "train"
    image: str = "image"
    label: str = "label"
    data_dir: str | None = None

    def __str__(self) -> str:
        return f"data set {self.dataset}, {self.split}"

    def images(self) -> Images:
        package = import_tensorflow_datasets("TensorflowDatasetImages")
        with loading(self.dataset, self.split):
            builder = package.builder(self.dataset, data_dir=self.data_dir)
            builder.download_and_prepare()
            shards = builder.info.splits[self.split].file_instructions
        if (file_format := builder.info.file_format.value) != "tfrecord":
            raise ConfigurationError(_OTHER_FORMAT.format(dataset=self.dataset, format=file_format))
        class_names = self._class_names(package, builder.info.features)
        if not shards:
            raise ConfigurationError(f"{self}: there is no example")
        parts, skipped = _parts(shards), [shard.skip for shard in shards]
        spec: dict[str, Any] = {
            self.image: tf.io.FixedLenFeature([], tf.string),
            self.label: tf.io.FixedLenFeature([], tf.int64),
        }

        def read(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            features = tf.io.parse_single_example(parts.read_tensor(index), spec)
            return features[self.image], features[self.label]

        def place(index: int) -> tuple[Path, int]:
            file, number = parts.place(index)
            return parts.files[file], number + skipped[file] + 1

        def key(index: int) -> str:
            file, record = place(index)
            return f"{file.name} {record}"

        return Images(
            count=len(parts.lengths),
            read=read,
            place=lambda index: "{}, record {}".format(*place(index)),
            key=key,
            contents=parts.contents,
            class_names=class_names,
        )

    def _class_names(self, package: Any, features: Any) -> tuple[str, ...] | None:
        """Checks that the features are there, and returns the names of the classes, if the data set has them."""
        kinds = {"image": package.features.Image, "label": (package.features.ClassLabel, package.features.Scalar)}
        for option, kind in kinds.items():
            if not isinstance({**features}.get(feature := getattr(self, option)), kind):
                known = ", ".join(f"{name} ({type(each).__name__})" for name, each in sorted(features.items()))
                hint = "" if feature in features else nearest(feature, features)
                raise ConfigurationError(
                    _NO_FEATURE.format(
                        dataset=self.dataset, kind=option, feature=feature, known=known, hint=hint, option=option
                    )
                )
        names = getattr(features[self.label], "names", None)
        return None if names is None else tuple(names)


def _parts(shards: Any) -> FileParts:
    """Returns the records of each file that belong to a split."""
    every = record_parts([Path(shard.filename) for shard in shards])
    starts = np.cumsum(every.counts) - every.counts
    takes = [min(shard.take, count - shard.skip) for shard, count in zip(shards, every.counts, strict=True)]
    chosen = [np.arange(shard.skip, shard.skip + n) + i for shard, n, i in zip(shards, takes, starts, strict=True)]
    places = np.concatenate(chosen)
    return FileParts(every.files, np.array(takes, np.int64), every.offsets[places], every.lengths[places])
