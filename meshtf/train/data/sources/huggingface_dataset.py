"""Data sets that Hugging Face's `datasets` saved to disk, as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import gin

from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.packages.pyarrow_modules import import_pyarrow
from meshtf.train.data.packages.saved_dataset import saved_files
from meshtf.train.data.sources._arrow_texts import check_column, texts_in
from meshtf.train.data.sources.document import Document


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class HuggingFaceDataset:
    """A column of texts in a data set that Hugging Face's `datasets` saved with `save_to_disk`.

    The package itself is not needed, only `pip install 'meshtf[arrow]'`.

    Attributes:
      path: the folder.
      split: the name of the split, if several were saved together.
      column: the column with the text.

    Raises:
      ConfigurationError: when documents are read: if pyarrow is not installed, the folder is no such data set, one of
        its files is missing or damaged, or it has no such split or column of texts.
    """

    path: str
    split: str | None = None
    column: str = "text"

    def __str__(self) -> str:
        return f"data set {self.path}" + (f", {self.split}" if self.split else "")

    def files(self) -> list[Path]:
        return saved_files(self.path, self.split, "HuggingFaceDataset")

    def documents(self) -> Iterator[Document]:
        arrow = import_pyarrow("pyarrow", "HuggingFaceDataset")
        for path in self.files():
            try:
                with open_regular(path) as file, arrow.ipc.open_stream(file) as batches:
                    check_column(batches.schema, self.column, str(path), "HuggingFaceDataset.column")
                    yield from texts_in(batches, self.column, str(path))
            except (OSError, arrow.ArrowException) as error:
                raise ConfigurationError(f"{path}, a file of the data set, cannot be read: {error}") from error
