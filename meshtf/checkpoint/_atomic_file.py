"""Files of tensors that appear whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meshtf.errors import SaveError
from meshtf.files.replaced_file import replaced_file


@contextlib.contextmanager
def atomic_file(final: Path) -> Iterator[BinaryIO]:
    """Yields a temporary file to write into. It becomes `final` at the end, and is deleted after an error.

    Raises:
      SaveError: if the file cannot be written.
    """
    try:
        with replaced_file(final) as file:
            yield file
    except OSError as error:
        raise SaveError(f"{final} cannot be written: {error.strerror or error}") from error
