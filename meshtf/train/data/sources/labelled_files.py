"""Files of texts with labels: CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import gin

from meshtf.errors import counted, nearest
from meshtf.field_checks import check_kinds
from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.packages.pyarrow_modules import import_pyarrow
from meshtf.train.data.sources._compressed import opened
from meshtf.train.data.sources.parquet_files import ROWS_AT_ONCE
from meshtf.train.data.sources.text_files import files_matching

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LONGEST_FIELD = 1 << 30
"""The most characters of a CSV field. Python's own limit, 131,072, is less than a long article has."""

_JSON_LINES, _PARQUET = (".jsonl", ".json"), ".parquet"

_UNKNOWN_KIND = """\
{path} is not of a kind that LabelledFiles reads: .csv and .tsv, whose first line names the columns, .jsonl or .json
with one object per line, and .parquet. All but the last may be compressed."""
_NO_COLUMN = """\
{place} has no column "{column}", only {known}{hint}
LabelledFiles.{option} says which column it is."""
_NO_VALUE = '{place}, column "{column}": {value!r} is no {kind}'


@dataclasses.dataclass(frozen=True)
class LabelledText:
    """A text or a pair of texts, with its label.

    Attributes:
      place: the file and the row, for messages.
      texts: the text, or the two texts of a pair.
      label: the label, a name or a number.
      column: the name of the label's column, for messages.
    """

    place: str
    texts: tuple[str, ...]
    label: str | int
    column: str


@runtime_checkable
class LabelledSource(Protocol):
    """Labelled texts in a definite order."""

    def examples(self) -> Iterator[LabelledText]:
        """Yields every text, in the same order each time.

        Raises:
          ConfigurationError: if there are none, or they cannot be read.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class LabelledFiles:
    """Texts and their labels in columns of CSV (or tabs), JSON lines or Parquet. A file's ending says which.

    Rows are counted from 1, without the line that names the columns. Parquet needs `pip install 'meshtf[arrow]'`.

    Attributes:
      patterns: one or several glob patterns; files are read in the order of their paths, and decompressed as those of
        `TextFiles`.
      text: the column of the text.
      label: the column of the label.
      pair: the column of a second text, where two are compared.

    Raises:
      ConfigurationError: when examples are read: if no file matches, one cannot be read, or a row lacks a value. The
        message names the file, the row and the column.
    """

    patterns: str | Sequence[str]
    text: str = "text"
    label: str = "label"
    pair: str | None = None

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"labelled files {', '.join(patterns)}"

    def examples(self) -> Iterator[LabelledText]:
        for path in files_matching(self.patterns):
            for number, row in enumerate(self._rows(path), 1):
                yield self._example(f"{path}, row {number}", row)

    @property
    def _columns(self) -> dict[str, str]:
        """The names of the columns, by the option that gives each."""
        named = {"text": self.text, "pair": self.pair, "label": self.label}
        return {option: column for option, column in named.items() if column is not None}

    def _rows(self, path: Path) -> Iterator[Mapping[str, Any]]:
        suffixes = [suffix.lower() for suffix in path.suffixes]
        ending = next((suffix for suffix in reversed(suffixes) if suffix not in _COMPRESSED), "")
        if ending in _DELIMITERS:
            return self._csv_rows(path, _DELIMITERS[ending])
        if ending in _JSON_LINES:
            return _json_rows(path)
        if ending == _PARQUET:
            return self._parquet_rows(path)
        raise ConfigurationError(_UNKNOWN_KIND.format(path=path))

    def _csv_rows(self, path: Path, delimiter: str) -> Iterator[Mapping[str, Any]]:
        csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))  # there is only one limit in a process
        with opened(path) as file:
            # Decode line by line: decoding larger parts would fail before the row that is not UTF-8.
            reader = csv.reader((line.decode() for line in file), delimiter=delimiter, strict=True)
            number = -1  # the first line names the columns
            try:
                for number, fields in enumerate(filter(None, reader)):
                    if not number:
                        names = fields
                        self._check_columns(names, str(path))
                    elif len(fields) != len(names):
                        counts = f"{counted(len(fields), 'field')}, and the first line names {len(names)} columns"
                        raise ConfigurationError(f"{path}, row {number}: it has {counts}")
                    else:
                        yield dict(zip(names, fields, strict=True))
            except (csv.Error, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{path}, row {number + 1}, cannot be read: {error}") from error

    def _parquet_rows(self, path: Path) -> Iterator[Mapping[str, Any]]:
        arrow, parquet = (import_pyarrow(name, "LabelledFiles") for name in ("pyarrow", "pyarrow.parquet"))
        try:
            with open_regular(path) as file:
                table = parquet.ParquetFile(file)
                self._check_columns(table.schema_arrow.names, str(path))
                for batch in table.iter_batches(batch_size=ROWS_AT_ONCE, columns=[*self._columns.values()]):
                    yield from batch.to_pylist()
        except (OSError, arrow.ArrowException) as error:
            raise ConfigurationError(f"the Parquet file {path} cannot be read: {error}") from error

    def _check_columns(self, names: Sequence[str], place: str) -> None:
        for option, column in self._columns.items():
            if column not in names:
                known = ", ".join(sorted(map(str, names))) or "none at all"
                hint = nearest(column, [*map(str, names)])
                raise ConfigurationError(
                    _NO_COLUMN.format(place=place, column=column, known=known, hint=hint, option=option)
                )

    def _example(self, place: str, row: Mapping[str, Any]) -> LabelledText:
        self._check_columns([*row], place)
        texts = [(column, row[column]) for option, column in self._columns.items() if option != "label"]
        for column, value in texts:
            if not isinstance(value, str) or not value.strip():  # CSV has no other way to say that there is none
                raise ConfigurationError(_NO_VALUE.format(place=place, column=column, value=value, kind="text"))
        label = row[self.label]
        if not isinstance(label, str | int) or isinstance(label, bool) or label == "":
            what = _NO_VALUE.format(place=place, column=self.label, value=label, kind="label, a name or an integer")
            raise ConfigurationError(what)
        return LabelledText(place, tuple(value for _, value in texts), label, self.label)


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with opened(path) as file:
        for number, line in enumerate(filter(bytes.strip, file), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"{path}, row {number}, is no JSON: {error}") from error
            if not isinstance(row, dict):
                raise ConfigurationError(f"{path}, row {number}: it is a {type(row).__name__}, and no object with keys")
            yield row
