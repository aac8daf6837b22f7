"""Files of JSON lines as documents."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin

from meshtf.errors import nearest
from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources._compressed import lines_from
from meshtf.train.data.sources.document import Document
from meshtf.train.data.sources.text_files import files_matching


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class JsonLines:
    """Files with a JSON object on each line, which has a text.

    Attributes:
      patterns: one or several glob patterns. Files are read in the order of their paths, and decompressed as those of
        `TextFiles`.
      feature: the key of the text.

    Raises:
      ConfigurationError: when documents are read: if no file matches, one cannot be read, or a line is no such object.
    """

    patterns: str | Sequence[str]
    feature: str = "text"

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)

    def __str__(self) -> str:
        patterns = (self.patterns,) if isinstance(self.patterns, str) else self.patterns
        return f"JSON lines {', '.join(patterns)}"

    @property
    def is_by_lines(self) -> bool:
        return True

    def files(self) -> list[Path]:
        return files_matching(self.patterns)

    def documents(self) -> Iterator[Document]:
        for path in self.files():
            yield from self.documents_of(path, 0, None)

    def documents_of(self, path: Path, start: int, stop: int | None) -> Iterator[Document]:
        origin = f" after byte {start:,}" if start else ""
        for number, line in lines_from(path, start, stop):
            if line.strip():
                name = f"{path}, line {number}{origin}"
                try:
                    text = self._text(line.decode(), name)
                except UnicodeDecodeError:
                    yield Document(name, line)  # the reader of documents reports it, or leaves it out
                    continue
                if text.strip():
                    yield Document(name, text.encode(errors="surrogatepass"))

    def _text(self, line: str, name: str) -> str:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{name} is no JSON: {error}") from error
        if not isinstance(found, dict) or self.feature not in found:
            keys = sorted(found) if isinstance(found, dict) else []
            raise ConfigurationError(
                f'{name} has no key "{self.feature}", only {", ".join(keys) or "none at all"}'
                f"{nearest(self.feature, keys)}\nJsonLines.feature says which key has the text."
            )
        text = found[self.feature]
        if not isinstance(text, str):
            raise ConfigurationError(f'{name}: "{self.feature}" holds no text: {str(text)[:60]}')
        return text
