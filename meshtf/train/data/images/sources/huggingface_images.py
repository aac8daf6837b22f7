"""Data sets of images that Hugging Face's `datasets` saved to disk."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from meshtf.errors import nearest
from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import crc_of
from meshtf.train.data.images.source import Images
from meshtf.train.data.packages.pyarrow_modules import import_pyarrow
from meshtf.train.data.packages.saved_dataset import saved_files

_BYTES = "bytes"

_NO_COLUMN = """\
{path} has no column "{column}", only {known}{hint}
HuggingFaceImages.{option} says which column is the {option}."""
_NO_IMAGES = """\
{path}: the column "{column}" holds {kind}, and no images; cast it with dataset.cast_column("{column}", \
datasets.Image()) before you save"""
_NO_LABELS = """\
{path}: the column "{column}" holds {kind}, and must hold a whole number in each row"""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class HuggingFaceImages:
    """Images and labels in a data set that Hugging Face's `datasets` saved with `save_to_disk`.

    The package itself is not needed, only `pip install 'meshtf[arrow]'`. The files are mapped into memory, and an image
    is read when it is needed. `save_to_disk` copies images from other files into its own.

    Attributes:
      path: the folder.
      split: the name of the split, if several were saved together.
      image: the column with the images.
      label: the column with the labels, from 0.

    Raises:
      ConfigurationError: when images are first needed: if pyarrow is not installed, the folder is no such data set, or
        one of its files is missing or damaged. The same if it has no row, or no such split or column.
    """

    path: str
    split: str | None = None
    image: str = "image"
    label: str = "label"

    def __str__(self) -> str:
        return f"images of {self.path}" + (f", {self.split}" if self.split else "")

    def images(self) -> Images:
        arrow = import_pyarrow("pyarrow", "HuggingFaceImages")
        files = saved_files(self.path, self.split, "HuggingFaceImages")
        tables = [self._table(arrow, path) for path in files]
        if not any(map(len, tables)):
            raise ConfigurationError(f"{self}: there is no row")
        rows = arrow.concat_tables(tables)
        counts, labels = [len(table) for table in tables], rows.column(self.label).to_numpy().astype(np.int64)
        contents, label_tensor = rows.column(self.image), tf.constant(labels)

        def place(index: int) -> tuple[Path, int]:
            file = int(np.searchsorted(np.cumsum(counts), index, side="right"))
            return files[file], index - sum(counts[:file]) + 1

        def key(index: int) -> str:
            file, row = place(index)
            return f"{file.name} {row}"

        return Images(
            count=len(labels),
            read=lambda index: (_read_tensor(contents, index), tf.gather(label_tensor, index)),
            place=lambda index: "{}, row {}".format(*place(index)),
            key=key,
            contents=f"{crc_of(_sizes(contents)):08x} {crc_of(labels):08x}",
            class_names=_class_names(rows.schema, self.label),
        )

    def _table(self, arrow: Any, path: Path) -> Any:
        """Maps a file into memory, and returns its columns of images and labels."""
        try:
            with open_regular(path):  # a named pipe would wait for ever
                mapped = arrow.memory_map(os.fsencode(path))
            table = arrow.ipc.open_stream(mapped).read_all()
        except (OSError, arrow.ArrowException) as error:
            raise ConfigurationError(f"{path}, a file of the data set, cannot be read: {error}") from error
        for option, column in (("image", self.image), ("label", self.label)):
            if column not in table.column_names:
                known, hint = ", ".join(sorted(table.column_names)), nearest(column, table.column_names)
                raise ConfigurationError(
                    _NO_COLUMN.format(path=path, column=column, known=known, hint=hint, option=option)
                )
        kind, labels = table.schema.field(self.image).type, table.column(self.label)
        if not arrow.types.is_struct(kind) or _BYTES not in [each.name for each in kind]:
            raise ConfigurationError(_NO_IMAGES.format(path=path, column=self.image, kind=kind))
        if not arrow.types.is_integer(labels.type) or labels.null_count:
            found = f"{labels.type}" + (", and nothing in some rows" if labels.null_count else "")
            raise ConfigurationError(_NO_LABELS.format(path=path, column=self.label, kind=found))
        return table.select([self.image, self.label])


def _read_tensor(contents: Any, index: tf.Tensor) -> tf.Tensor:
    """Returns the bytes of an image, [] string. They are empty if there is none in the row."""

    def read(number: int) -> bytes:
        return (contents[int(number)].as_py() or {}).get(_BYTES) or b""

    return tf.ensure_shape(tf.numpy_function(read, [index], tf.string, stateful=False), [])


def _sizes(contents: Any) -> np.ndarray:
    """Returns the number of bytes in each row, [rows] int64; 0 where there is no image."""
    compute = import_pyarrow("pyarrow.compute", "HuggingFaceImages")
    lengths = compute.binary_length(compute.struct_field(contents, _BYTES))
    return np.asarray(compute.fill_null(lengths, 0).to_numpy(), np.int64)


def _class_names(schema: Any, column: str) -> tuple[str, ...] | None:
    """Returns the names of the classes, which `datasets` keeps beside the schema, or None."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(features[column]["names"])
    except (KeyError, TypeError, ValueError):
        return None
