"""Data sets that Hugging Face's `datasets` saved to disk, as documents."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin

from meshtf.errors import nearest
from meshtf.files.regular_file import open_regular, read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._arrow_texts import check_column, texts_in
from meshtf.train.data.sources._compressed import import_pyarrow
from meshtf.train.data.sources.document import Document
from meshtf_programs.user_paths import user_path

STATE, SPLITS = "state.json", "dataset_dict.json"
LARGEST_STATE = 1 << 24

NO_DATASET = """\
{folder} is no data set that Dataset.save_to_disk wrote: it has no {missing}; the current folder is {here}."""


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
        folder = self._folder()
        return [folder / name for name in self._names(folder)]

    def documents(self) -> Iterator[Document]:
        arrow = import_pyarrow("pyarrow", "HuggingFaceDataset")
        for path in self.files():
            try:
                with open_regular(path) as file, arrow.ipc.open_stream(file) as batches:
                    check_column(batches.schema, self.column, str(path), "HuggingFaceDataset.column")
                    yield from texts_in(batches, self.column, str(path))
            except (OSError, arrow.ArrowException) as error:
                raise ConfigurationError(f"{path}, a file of the data set, cannot be read: {error}") from error

    def _folder(self) -> Path:
        folder = user_path(self.path)
        if not (folder / SPLITS).is_file():
            if self.split is not None:
                raise ConfigurationError(f"{folder} has no splits; leave out HuggingFaceDataset.split = {self.split!r}")
            return folder
        said = _read_json(folder / SPLITS)
        names = said.get("splits", []) if isinstance(said, dict) else []
        if self.split not in names:
            raise ConfigurationError(
                f"{folder} has the splits {', '.join(names)}, and HuggingFaceDataset.split is {self.split!r}"
                f"{nearest(str(self.split), names)}"
            )
        return folder / str(self.split)

    def _names(self, folder: Path) -> list[str]:
        if not (folder / STATE).is_file():
            raise ConfigurationError(NO_DATASET.format(folder=folder, missing=STATE, here=Path.cwd()))
        try:
            names = [file["filename"] for file in _read_json(folder / STATE)["_data_files"]]
        except (KeyError, TypeError) as error:
            raise ConfigurationError(f"{folder / STATE} does not list the data set's files") from error
        if any(not isinstance(name, str) or Path(name).name != name for name in names):
            raise ConfigurationError(f"{folder / STATE} lists files outside of its folder")
        return names


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, LARGEST_STATE))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
