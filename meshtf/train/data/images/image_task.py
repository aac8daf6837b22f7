"""The task of classifying images."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import counted
from meshtf.field_checks import check_kinds, what_it_lacks
from meshtf.number_checks import is_integer
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import CONTENTS, SOURCE
from meshtf.train.data.images.augmentations.augmentation import Augmentation
from meshtf.train.data.images.augmentations.crops import CentralCrop, Crop, DistortedCrop
from meshtf.train.data.images.augmentations.flip import Flip
from meshtf.train.data.images.augmentations.mixes import Mix
from meshtf.train.data.images.bad_images import BadImages
from meshtf.train.data.images.chosen_images import cached, chosen, halves
from meshtf.train.data.images.image_batches import ImageBatches
from meshtf.train.data.images.image_examples import IMAGES, LABELS, ImageExamples, in_parallel, skipping
from meshtf.train.data.images.image_format import ImageFormat
from meshtf.train.data.images.image_order import ImageOrder
from meshtf.train.data.images.mixing import pairs_made
from meshtf.train.data.images.source import Images, ImageSource
from meshtf.train.data.shuffled_batches import ShuffledBatches
from meshtf.train.task import WEIGHTS, Batch, Fingerprint, Position

_INDEX = "index"

_NO_KIND = "ImageTask.{name} is no {kind}: {value!r}{advice}"
_NO_LIST = "ImageTask.{name} must be a list, and is {value!r}; in gin [@Name(), @Another()] is one"
_ONE_SIDE = """\
none of {count} in {source} is {side}: a hash of each name decides, with ImageTask.held_out = {held_out}. \
Give more images, another share, or a source of its own: ImageTask.held_out = @..."""
_OTHER_COUNT = """\
{source} has {found} ({names}), and ImageTask.num_classes is {count}"""
_OTHER_CLASSES = """\
the classes of {source} are {classes}, and those of {other} are {others}, so their labels would not mean the same.
ClassFolders.classes names the classes of both."""
_ALL_BAD = "all {count} of {source} are bad, so there is nothing to evaluate"


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ImageTask:
    """A `TaskByRows` of images, each of one class: `images` [height, width, channels] float32, `labels` [] int32.

    A training image is cropped, resized, augmented and normalized. Only the seed, the epoch and the image decide how,
    so batches are the same for any number of processes and after a resume. A held-out image is cropped by
    `evaluation_crop`, resized and normalized.

    Attributes:
      source: the images.
      num_classes: the number of classes. Labels are from 0 to `num_classes` - 1.
      format: the size of images as the model gets them, and how their values are scaled.
      held_out: the share of the images that is held out, by a hash of their names; or a source of held-out images.
      crop: chooses the part of a training image.
      evaluation_crop: chooses the part of a held-out image.
      augmentations: random changes to training images, in this order.
      mixes: one of these mixes is drawn for each pair of training images, at the places 2 n and 2 n + 1. If there are
        any, `labels` are weights, [classes] float32, for held-out images as well.
      cache_decoded: whether each image is decoded once and stays in memory, with 3 bytes for each pixel.
      skip_bad_images: whether the next good image takes the place of one that cannot be used. Bad held-out images are
        found before the first evaluation, and left out. Skipped images are counted, and the first ten are printed.
      repeats: how many times training takes each image before it takes others, each time with other random changes
        (repeated augmentation, Hoffer et al. 2020). A pass over all images takes that many times as long.

    Raises:
      ConfigurationError: if a value is impossible. When images are first needed: if there are none, or the classes do
        not match. When batches are made: if an image cannot be read or decoded, or its label is not a class. The
        message names the file and the record.
    """

    source: ImageSource
    num_classes: int
    format: ImageFormat = dataclasses.field(default_factory=ImageFormat)
    held_out: float | ImageSource = 0.1
    crop: Crop = dataclasses.field(default_factory=DistortedCrop)
    evaluation_crop: Crop = dataclasses.field(default_factory=CentralCrop)
    augmentations: Sequence[Augmentation] = dataclasses.field(default_factory=lambda: (Flip(),))
    mixes: Sequence[Mix] = ()
    cache_decoded: bool = False
    skip_bad_images: bool = False
    repeats: int = 1
    tokens_per_example: None = dataclasses.field(default=None, init=False)
    vocabulary: None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        kinds = {"source": ImageSource, "format": ImageFormat, "crop": Crop, "evaluation_crop": Crop}
        given = [(name, kind, getattr(self, name)) for name, kind in kinds.items()]
        for name, kind in (("augmentations", Augmentation), ("mixes", Mix)):
            if not isinstance(several := getattr(self, name), list | tuple):
                raise ConfigurationError(_NO_LIST.format(name=name, value=several))
            given += [(name, kind, each) for each in several]
        if not isinstance(self.held_out, float):
            given.append(("held_out", ImageSource, self.held_out))
        for name, kind, value in given:
            if isinstance(value, type) or not isinstance(value, kind):
                advice = what_it_lacks(value, kind)
                raise ConfigurationError(_NO_KIND.format(name=name, kind=kind.__name__, value=value, advice=advice))
        if isinstance(self.held_out, float) and not 0 < self.held_out < 1:
            raise ConfigurationError(
                f"ImageTask.held_out must be a share of the images, in (0, 1), or a source, and is {self.held_out}"
            )
        if not is_integer(self.repeats, 1):
            raise ConfigurationError(f"ImageTask.repeats must be a whole number, 1 or more, and is {self.repeats!r}")
        check_kinds(self, ConfigurationError)
        if self.num_classes < 2:
            raise ConfigurationError(f"ImageTask.num_classes must be 2 or more, and is {self.num_classes}")

    def __str__(self) -> str:
        train, held_out = self._parts
        return f"{self.name}: {counted(train.count, 'image')} to train on, {held_out.count:,} held out"

    @property
    def name(self) -> str:
        return f"{self.num_classes:,} classes of {self.source}"

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        classes = [mtf.Dimension("classes", self.num_classes)] if self.mixes else []
        return {
            IMAGES: mtf.TensorSpec(mtf.Shape([batch]) + self.format.shape, tf.float32),
            LABELS: mtf.TensorSpec([batch, *classes], tf.float32 if self.mixes else tf.int32),
        }

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> ImageBatches:
        return self.training_rows(slice(0, batch_size), batch_size, seed, position)

    def training_rows(self, rows: slice, batch_size: int, seed: int, position: Position | None = None) -> ImageBatches:
        images, bad = self._train
        examples = dataclasses.replace(self._examples(images, self.crop), augmentations=self.augmentations, seed=seed)
        order = ImageOrder(images.count, seed, self.repeats)
        make = skipping(examples.example, images, bad) if self.skip_bad_images else examples.example

        def features_of(indices: tf.Tensor, places: tf.Tensor) -> Batch:
            if not indices.shape[0]:
                return examples.no_examples()
            if self.mixes:
                pairs = tf.data.Dataset.range(places[0] // 2, places[-1] // 2 + 1)
                both = in_parallel(pairs_made(make, order.index_at, self.mixes, seed), pairs)
                made = both.unbatch().skip(places[0] % 2).take(indices.shape[0])
            else:
                made = in_parallel(make, tf.data.Dataset.from_tensor_slices((indices, places)))
            return made.batch(indices.shape[0]).get_single_element()

        batches = ShuffledBatches(features_of, images.count, batch_size, seed, position, rows, order.index_at)
        return ImageBatches(batches, rows, order, bad.too_many if self.skip_bad_images else bad.error)

    @property
    def num_training_examples(self) -> int:
        return self._parts[0].count

    @property
    def num_skipped(self) -> int:
        """Returns how many bad images this process has skipped so far."""
        return sum(len(bad.skipped) for _, bad in (self._train, self._all_held_out))

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        return self.evaluation_rows(slice(0, batch_size), batch_size)

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterator[Batch]:
        images, _ = self._held_out
        examples = self._examples(images, self.evaluation_crop)
        starts = range(0, images.count, batch_size)
        own = [range(start + rows.start, min(start + rows.stop, images.count)) for start in starts]
        made = self._made(examples, [index for indices in own for index in indices], max(rows.stop - rows.start, 1))
        for start, indices in zip(starts, own, strict=True):
            features = next(made) if len(indices) else examples.no_examples()
            around = (rows.start, batch_size - rows.start - len(indices))
            padded = {name: _padded(np.asarray(value), around) for name, value in features.items()}
            yield {**padded, WEIGHTS: (np.arange(start, start + batch_size) < images.count).astype(np.float32)}

    def fingerprint(self) -> Fingerprint:
        """Returns facts about the images, as `TaskOfKnownData.fingerprint`."""
        train, held_out = self._parts
        sources = (self.source, self.held_out if isinstance(self.held_out, ImageSource) else self.source)
        parts = ("images to train on", "held-out images")
        facts: Fingerprint = {
            part: {"images": images.count, SOURCE: str(source), CONTENTS: images.contents}
            for part, images, source in zip(parts, (train, held_out), sources, strict=True)
        }
        facts[parts[0]]["repeats"] = str(self.repeats)  # the order depends on it
        return facts

    def num_bytes(self, _: Mapping[str, np.ndarray | tf.Tensor]) -> None:
        """Returns None, since a class stands for no text."""

    def _examples(self, images: Images, crop: Crop) -> ImageExamples:
        return ImageExamples(images, self.num_classes, self.format, crop, has_weights=bool(self.mixes))

    def _made(self, examples: ImageExamples, indices: Sequence[int], batch_size: int) -> Iterator[Batch]:
        """Yields the examples of these indices in batches.

        Raises:
          ConfigurationError: if one of the images is bad. The message names it.
        """
        pairs = tf.data.Dataset.from_tensor_slices(np.array(indices, np.int64)).map(lambda index: (index, index))
        made = iter(in_parallel(examples.example, pairs).batch(batch_size).prefetch(1))
        for start in range(0, len(indices), batch_size):
            try:
                batch = next(made)
            except tf.errors.OpError as error:
                _, bad = self._held_out
                found = map(bad.error, indices[start : start + batch_size])
                raise next(filter(None, found), error) from error
            yield batch

    @functools.cached_property
    def _parts(self) -> tuple[Images, Images]:
        """The images to train on, and those held out."""
        images = self._checked(self.source)
        if isinstance(self.held_out, ImageSource):
            return images, self._matching(images, self._checked(self.held_out))
        parts = halves(images, self.held_out)
        for part, side in zip(parts, ("to train on", "held out"), strict=True):
            if not part.count:
                count = counted(images.count, "image")
                message = _ONE_SIDE.format(count=count, source=self.source, side=side, held_out=self.held_out)
                raise ConfigurationError(message)
        return parts

    def _checked(self, source: ImageSource) -> Images:
        images = source.images()
        names = images.class_names
        if names is not None and len(names) != self.num_classes:
            found = counted(len(names), "class", "classes")
            raise ConfigurationError(
                _OTHER_COUNT.format(source=source, found=found, names=_listed(names), count=self.num_classes)
            )
        return images

    def _matching(self, train: Images, held_out: Images) -> Images:
        if train.class_names and held_out.class_names and train.class_names != held_out.class_names:
            classes, others = _listed(train.class_names), _listed(held_out.class_names)
            raise ConfigurationError(
                _OTHER_CLASSES.format(source=self.source, classes=classes, other=self.held_out, others=others)
            )
        return held_out

    @functools.cached_property
    def _train(self) -> tuple[Images, BadImages]:
        return self._read_as_asked(self._parts[0])

    @functools.cached_property
    def _all_held_out(self) -> tuple[Images, BadImages]:
        return self._read_as_asked(self._parts[1])

    def _read_as_asked(self, images: Images) -> tuple[Images, BadImages]:
        bad = BadImages(images, self.num_classes, self.format.channels)
        return cached(images, self.format.channels) if self.cache_decoded else images, bad

    @functools.cached_property
    def _held_out(self) -> tuple[Images, BadImages]:
        """The held-out images without the bad ones to skip. To find these, all images are decoded."""
        images, bad = self._all_held_out
        if not self.skip_bad_images:
            return images, bad
        examples = self._examples(images, self.evaluation_crop)
        pairs = tf.data.Dataset.range(images.count).map(lambda index: (index, index))

        def tried(index: tf.Tensor, place: tf.Tensor) -> Batch:
            return {**examples.example(index, place), _INDEX: index}

        good = np.array([int(each[_INDEX]) for each in in_parallel(tried, pairs).ignore_errors()], np.int64)
        for index in sorted({*range(images.count)} - {*good.tolist()}):
            bad.skip(index)
        if not len(good):
            raise ConfigurationError(_ALL_BAD.format(count=counted(images.count, "held-out image"), source=self.name))
        return chosen(images, good), BadImages(chosen(self._parts[1], good), self.num_classes, self.format.channels)


def _padded(array: np.ndarray, around: tuple[int, int]) -> np.ndarray:
    return np.pad(array, [around] + [(0, 0)] * (array.ndim - 1))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
