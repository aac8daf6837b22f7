"""Pictures of matplotlib's: their files, and texts of users in them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from meshtf.files.replaced_file import replaced_file


def save_picture(figure: Any, path: Path) -> None:
    """Writes a figure as a PNG, which appears whole or not at all. Raises OSError like `replaced_file`.

    Letters that matplotlib's font lacks, as in the name of a run, are shown as boxes.
    """
    with replaced_file(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(file, format="png", metadata={"Software": None})


def shown_text(text: str) -> str:
    """Returns a text that a picture shows as it is. A pair of `$` would make a formula, and a legend has no line for a
    text that begins with `_`.
    """
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if text.startswith("_") else escaped
