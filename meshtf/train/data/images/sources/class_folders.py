"""Folders of image files, one for each class."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin
import numpy as np
import tensorflow as tf

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.source import Images
from meshtf_programs.user_paths import user_path

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
"""The endings of the files that are images, in lower case."""

_NO_FOLDER = '{option}: there is no folder "{path}" (in {cwd}). It must hold a folder of images for each class.'
_NO_IMAGES = """\
there is no image in "{path}". It must hold a folder for each class, with files that end with {endings}{found}"""
_EMPTY_CLASS = """\
"{path}" has no image in {folders}. Remove the folders that are not classes, or, if some classes have no image here, \
name all classes in ClassFolders.classes."""
_OTHER_FOLDER = '"{path}" has the folder "{name}", which ClassFolders.classes does not name{hint}'


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ClassFolders:
    """A folder with a folder of image files for each class: `flowers/rose/17.jpg`.

    Files are read in the order of their paths. Folders inside the folder of a class count, and hidden files do not.

    Attributes:
      folder: the folder of all classes.
      classes: the names of the classes' folders in the order of their labels. None: all folders, sorted by name.

    Raises:
      ConfigurationError: when images are first needed: if there is no such folder or no image in it, or if it has a
        folder that `classes` does not name, or without `classes` one that has no image.
    """

    folder: str
    classes: Sequence[str] | None = None

    def __str__(self) -> str:
        return f"class folders {self.folder}"

    def images(self) -> Images:
        root = Path(user_path(self.folder))
        if not root.is_dir():
            raise ConfigurationError(_NO_FOLDER.format(option="ClassFolders.folder", path=self.folder, cwd=Path.cwd()))
        names = self._class_names(root)
        found = [(path, label) for label, name in enumerate(names) for path in _image_files(root / name)]
        if not found:
            raise ConfigurationError(_no_images(self.folder, root))
        with_images = {label for _, label in found}
        if self.classes is None and len(with_images) < len(names):
            folders = ", ".join(f'"{name}"' for label, name in enumerate(names) if label not in with_images)
            raise ConfigurationError(_EMPTY_CLASS.format(path=self.folder, folders=folders))
        paths, labels = [path for path, _ in found], np.array([label for _, label in found], np.int64)
        relative = [path.relative_to(root).as_posix() for path in paths]
        path_tensor, label_tensor = tf.constant([os.fsencode(path) for path in paths]), tf.constant(labels)
        return Images(
            count=len(paths),
            read=lambda index: (tf.io.read_file(tf.gather(path_tensor, index)), tf.gather(label_tensor, index)),
            place=lambda index: str(paths[index]),
            key=relative.__getitem__,
            contents=_checksum(relative, [path.stat().st_size for path in paths]),
            class_names=names,
        )

    def _class_names(self, root: Path) -> tuple[str, ...]:
        found = sorted(each.name for each in root.iterdir() if each.is_dir() and not each.name.startswith("."))
        if self.classes is None:
            return tuple(found)
        for name in found:
            if name not in self.classes:
                hint = nearest(name, self.classes)
                raise ConfigurationError(_OTHER_FOLDER.format(path=self.folder, name=name, hint=hint))
        return tuple(self.classes)


def _image_files(folder: Path) -> Iterator[Path]:
    files = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and not path.name.startswith("."))
    yield from sorted(path for path in files if path.is_file())


def _no_images(folder: str, root: Path) -> str:
    others = sorted(path.name for path in root.iterdir())[:3]
    found = f", and holds {', '.join(others)}" if others else ", and is empty"
    return _NO_IMAGES.format(path=folder, endings=", ".join(ENDINGS), found=found)


def _checksum(names: Sequence[str], sizes: Sequence[int]) -> str:
    return f"{zlib.crc32(repr([*zip(names, sizes, strict=True)]).encode(errors='surrogatepass')):08x}"
