"""TFRecord files of tf.train.Example as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gin

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._tf_examples import check_compression, feature_in, features_in
from meshtf.train.data.sources.document import Document
from meshtf.train.data.sources.text_files import files_matching


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TfRecords:
    """Records of tf.train.Example, each with a text as bytes.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths.
      feature: the name of the feature that is the text. Several values are several documents.
      compression: "", "GZIP" or "ZLIB".

    Raises:
      ConfigurationError: for a value of another kind. When documents are read: if no file matches, one is damaged, or a
        record lacks the feature.
    """

    patterns: str | Sequence[str]
    feature: str = "text"
    compression: Literal["", "GZIP", "ZLIB"] = ""

    def __post_init__(self) -> None:
        check_compression(self.compression, "TfRecords.compression")
        check_kinds(self, ConfigurationError)

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"TFRecords {', '.join(patterns)}"

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        for path in self.files():
            for name, features in features_in(path, self.compression, "TfRecords.compression"):
                for text in self._texts(features, name):
                    yield Document(name, text)

    def _texts(self, features: Mapping[str, Any], name: str) -> Sequence[bytes]:
        advice = "TfRecords.feature says which feature is the text."
        found = feature_in(features, self.feature, name, advice)
        if found.WhichOneof("kind") != "bytes_list":
            raise ConfigurationError(
                f'{name}: the feature "{self.feature}" holds numbers, and no text; TokenRecords reads tokens'
            )
        return [text for text in found.bytes_list.value if text.strip()]
