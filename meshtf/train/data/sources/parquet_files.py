"""Parquet files as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin

from meshtf.field_checks import check_kinds
from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.packages.pyarrow_modules import import_pyarrow
from meshtf.train.data.sources._arrow_texts import check_column, texts_in
from meshtf.train.data.sources.document import Document
from meshtf.train.data.sources.text_files import files_matching

ROWS_AT_ONCE = 256


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class ParquetFiles:
    """A column of texts in Parquet files. Needs `pip install 'meshtf[arrow]'`.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths.
      column: the column with the text.

    Raises:
      ConfigurationError: when documents are read: if pyarrow is not installed, no file matches, one is damaged, or has
        no such column of texts.
    """

    patterns: str | Sequence[str]
    column: str = "text"

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"Parquet files {', '.join(patterns)}"

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        arrow = import_pyarrow("pyarrow", "ParquetFiles")
        parquet = import_pyarrow("pyarrow.parquet", "ParquetFiles")
        for path in self.files():
            try:
                with open_regular(path) as file:
                    opened = parquet.ParquetFile(file)
                    check_column(opened.schema_arrow, self.column, str(path), "ParquetFiles.column")
                    batches = opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=[self.column])
                    yield from texts_in(batches, self.column, str(path))
            except (OSError, arrow.ArrowException) as error:
                raise ConfigurationError(f"the Parquet file {path} cannot be read: {error}") from error
