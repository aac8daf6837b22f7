"""TFRecord files of tokens as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import gin
import numpy as np

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._tf_examples import check_compression, feature_in, features_in
from meshtf.train.data.sources.document import Document, document_of_ids
from meshtf.train.data.sources.text_files import files_matching


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TokenRecords:
    """Records of tf.train.Example, each with a document's ids as integers: text that others have tokenized.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths.
      features: the name of the feature of ids, or one for each text of a document, as ("inputs", "targets") for
        `TextPairs`. Each text has an end of its own, which is added if it is missing. Records without any id are left
        out.
      compression: "", "GZIP" or "ZLIB".

    Raises:
      ConfigurationError: for a value of another kind. When documents are read: if no file matches, one is damaged, a
        record lacks a feature, or an id is not in the vocabulary.
    """

    patterns: str | Sequence[str]
    features: str | Sequence[str] = "targets"
    compression: Literal["", "GZIP", "ZLIB"] = ""

    def __post_init__(self) -> None:
        check_compression(self.compression, "TokenRecords.compression")
        check_kinds(self, ConfigurationError)
        if not self._names:
            raise ConfigurationError("TokenRecords.features names no feature; give one, or a list")

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"tokens in TFRecords {', '.join(patterns)}"

    @property
    def _names(self) -> Sequence[str]:
        return (self.features,) if isinstance(self.features, str) else self.features

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        advice = "TokenRecords.features says which features are the tokens."
        for path in self.files():
            for name, found in features_in(path, self.compression, "TokenRecords.compression"):
                parts = []
                for feature in self._names:
                    value = feature_in(found, feature, name, advice)
                    if value.WhichOneof("kind") not in ("int64_list", None):
                        raise ConfigurationError(f'{name}: the feature "{feature}" holds no integers. {advice}')
                    parts.append(np.array(value.int64_list.value, np.int64))
                if any(len(part) for part in parts):
                    yield document_of_ids(name, parts)
