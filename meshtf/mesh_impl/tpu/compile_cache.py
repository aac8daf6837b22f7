"""A cache of compilation results, in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.files.replaced_file import replace_file

_FORMAT = "1"


@dataclasses.dataclass(frozen=True)
class CompileCache:
    """Stores each result in a file that is named by a hash of the program and of the request to the compiler.

    Attributes:
      folder: the folder of the files; it is created if it is missing.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Creates the folder. Raises OSError if that fails."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def read(self, hlo: bytes, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The stored result; None if there is none or it cannot be read."""
        try:
            return json.loads(gzip.decompress(self._path(hlo, asked).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None

    def write(self, hlo: bytes, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Stores a result. If it cannot be written, nothing is stored, and the program will be compiled again."""
        content = gzip.compress(json.dumps(answer).encode(), mtime=0)
        with contextlib.suppress(OSError):
            replace_file(self._path(hlo, asked), content)

    def _path(self, hlo: bytes, asked: Mapping[str, Any]) -> Path:
        question = hashlib.sha256(hlo)
        question.update(json.dumps([_FORMAT, asked], sort_keys=True).encode())
        return self.folder / f"{question.hexdigest()}.json.gz"
