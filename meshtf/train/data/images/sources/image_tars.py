"""Tar files of images and their labels, in the layout of WebDataset's."""

from __future__ import annotations

import dataclasses
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin
import numpy as np
import tensorflow as tf

from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import crc_of
from meshtf.train.data.images.source import Images
from meshtf.train.data.images.sources.file_parts import FileParts
from meshtf.train.data.images.sources.shard_names import check_shards
from meshtf.train.data.sources.text_files import files_matching

_UNREADABLE = """\
the tar file {path} cannot be read: {reason}
It is damaged, compressed, or no tar file. Images are read in any order, so the file must not be compressed."""
_NO_LABEL = """\
{path}, sample "{key}": {fault}
ImageTars.label is the ending of the file with the class number; ImageTars.endings are the endings of image files."""

_MOST_DIGITS = 18
"""A label of so many digits fits into an int64."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Sample:
    key: str
    offset: int
    length: int
    label: int


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ImageTars:
    """Tar files in which the files of an example follow each other: `0017.jpg`, and `0017.cls` with its label.

    The headers and the labels are read at the start, and the images when they are needed. Files in folders count, and
    hidden files do not.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths.
      endings: the endings of images, in lower case.
      label: the ending of the file that has the label, a number, as text.
      first_label: the number of the first class.

    Raises:
      ConfigurationError: when images are first needed: if no file matches, a shard is missing, a file is damaged or
        has no image, or a sample lacks its image or its label.
    """

    patterns: str | Sequence[str]
    endings: Sequence[str] = ("jpg", "jpeg", "png", "webp")
    label: str = "cls"
    first_label: int = 0

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"image tars {', '.join(patterns)}"

    def images(self) -> Images:
        files = files_matching(self.patterns)
        check_shards(files, "ImageTars.patterns")
        found = [self._samples_of(path) for path in files]
        samples = [sample for each in found for sample in each]
        if not samples:
            raise ConfigurationError(f"there is no image in {files[0]}{', ...' if len(files) > 1 else ''}")
        offsets, lengths, labels = (
            np.array([getattr(sample, name) for sample in samples], np.int64) for name in ("offset", "length", "label")
        )
        parts = FileParts(files, np.array([len(each) for each in found], np.int64), offsets, lengths)
        label_tensor = tf.constant(labels - self.first_label)
        return Images(
            count=len(samples),
            read=lambda index: (parts.read_tensor(index), tf.gather(label_tensor, index)),
            place=lambda index: f'{files[parts.place(index)[0]]}, sample "{samples[index].key}"',
            key=lambda index: samples[index].key,
            contents=f"{parts.contents} {crc_of(labels):08x}",
        )

    def _samples_of(self, path: Path) -> list[_Sample]:
        try:
            with open_regular(path) as file, tarfile.open(fileobj=file, mode="r:") as tar:
                return [*self._samples(path, tar)]
        except (OSError, tarfile.TarError) as error:
            raise ConfigurationError(_UNREADABLE.format(path=path, reason=error)) from error

    def _samples(self, path: Path, tar: tarfile.TarFile) -> Iterator[_Sample]:
        groups: dict[str, dict[str, tarfile.TarInfo]] = {}
        for member in filter(tarfile.TarInfo.isfile, tar):
            folder, _, name = member.name.rpartition("/")
            stem, _, ending = name.partition(".")
            if not stem:
                continue
            groups.setdefault(f"{folder}/{stem}" if folder else stem, {})[ending.lower()] = member
        for key, members in groups.items():
            image = next((members[ending] for ending in self.endings if ending in members), None)
            if image is None or self.label not in members:
                missing = f"no image ({', '.join(self.endings)})" if image is None else f'no file of "{self.label}"'
                fault = f"it has {missing}, only {', '.join(members)}"
                raise ConfigurationError(_NO_LABEL.format(path=path, key=key, fault=fault))
            content = tar.extractfile(members[self.label])
            text = content.read(100).decode(errors="replace").strip() if content else ""
            if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
                fault = f"its label {text!r} is no class number"
                raise ConfigurationError(_NO_LABEL.format(path=path, key=key, fault=fault))
            yield _Sample(key, image.offset_data, image.size, int(text))
