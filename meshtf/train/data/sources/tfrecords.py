"""TFRecord files of tf.train.Example as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import gin
import tensorflow as tf
from google.protobuf.message import DecodeError

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._record_lengths import longest_record
from meshtf.train.data.sources.document import Document
from meshtf.train.data.sources.text_files import files_matching

BATCH_BYTES, MOST_RECORDS = 1 << 24, 1024
"""Of records that TensorFlow gives at once: one by one, handing over costs a hundred times what reading does."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TfRecords:
    """Records of tf.train.Example, each with a text as bytes.

    Attributes:
      patterns: one or several glob patterns; files are read in the order of their paths.
      feature: the name of the feature that is the text; several values are several documents.
      compression: "", "GZIP" or "ZLIB".

    Raises:
      ConfigurationError: a value of another kind; when documents are read, no file matches, one is damaged, or a
        record lacks the feature.
    """

    patterns: str | Sequence[str]
    feature: str = "text"
    compression: Literal["", "GZIP", "ZLIB"] = ""

    def __post_init__(self) -> None:
        if self.compression not in ("", "GZIP", "ZLIB"):
            raise ConfigurationError(
                f'TfRecords.compression must be "", "GZIP" or "ZLIB", and is {self.compression!r}'
                f"{nearest(str(self.compression).upper(), ('GZIP', 'ZLIB'))}"
            )

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"TFRecords {', '.join(patterns)}"

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        for path in self.files():
            for number, record in enumerate(self._records(path), start=1):
                name = f"{path}, record {number}"
                for text in self._texts(record, name):
                    yield Document(name, text)

    def _records(self, path: Path) -> Iterator[bytes]:
        try:
            at_once = min(max(BATCH_BYTES // max(longest_record(path, self.compression), 1), 1), MOST_RECORDS)
            for batch in tf.data.TFRecordDataset(str(path), self.compression).batch(at_once).as_numpy_iterator():
                yield from batch.tolist()
        except (tf.errors.OpError, OSError, ValueError) as error:
            reason = getattr(error, "message", error)
            raise ConfigurationError(
                f"the TFRecord file {path} cannot be read: {reason}\n"
                f"It is damaged, no TFRecord file, or TfRecords.compression ({self.compression!r}) is not its own."
            ) from error

    def _texts(self, record: bytes, name: str) -> Sequence[bytes]:
        try:
            features = tf.train.Example.FromString(record).features.feature
        except DecodeError as error:
            raise ConfigurationError(f"{name} is no tf.train.Example: {error}") from error
        if self.feature not in features:
            raise ConfigurationError(
                f'{name} has no feature "{self.feature}", only {", ".join(sorted(features)) or "none at all"}'
                f"{nearest(self.feature, features)}\nTfRecords.feature says which feature is the text."
            )
        if features[self.feature].WhichOneof("kind") != "bytes_list":
            raise ConfigurationError(f'{name}: the feature "{self.feature}" holds numbers, and no text')
        return [text for text in features[self.feature].bytes_list.value if text.strip()]
