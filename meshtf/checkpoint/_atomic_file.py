"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meshtf.errors import SaveError


@contextlib.contextmanager
def atomic_file(final: Path) -> Iterator[BinaryIO]:
    """A temporary file to write into, which becomes `final` at the end, and is gone after an error.

    Raises:
      SaveError: it cannot be written.
    """
    temporary = final.with_name(f".writing-{final.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(final)
    except OSError as error:
        raise SaveError(f"{final} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
