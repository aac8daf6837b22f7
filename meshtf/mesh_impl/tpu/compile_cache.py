"""A folder with a compiler's answers to programs that it compiled before."""

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
    """A file for each answer, named by a hash of the program and of the request to the compiler.

    Attributes:
      folder: the folder of the files; it is made if it is not there.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Raises OSError where the folder cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def read(self, hlo: bytes, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer; None where there is none that can be read."""
        try:
            return json.loads(gzip.decompress(self._path(hlo, asked).read_bytes()))
        except (OSError, EOFError, ValueError, zlib.error):
            return None

    def write(self, hlo: bytes, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keeps an answer. If it cannot be written, the program is compiled again another time."""
        content = gzip.compress(json.dumps(answer).encode(), mtime=0)
        with contextlib.suppress(OSError):
            replace_file(self._path(hlo, asked), content)

    def _path(self, hlo: bytes, asked: Mapping[str, Any]) -> Path:
        question = hashlib.sha256(hlo)
        question.update(json.dumps([_FORMAT, asked], sort_keys=True).encode())
        return self.folder / f"{question.hexdigest()}.json.gz"
