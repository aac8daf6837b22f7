"""The files of a data set that Hugging Face's `datasets` saved to disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meshtf.errors import nearest
from meshtf.files.regular_file import read_regular
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.user_paths import user_path

STATE, SPLITS = "state.json", "dataset_dict.json"
LARGEST_STATE = 1 << 24

NO_DATASET = """\
{folder} is no data set that Dataset.save_to_disk wrote: it has no {missing}; the current folder is {here}."""


def saved_files(path: str, split: str | None, source: str) -> list[Path]:
    """Returns the Arrow files of a saved data set, in their order.

    Args:
      path: the folder.
      split: the name of the split, if several were saved together.
      source: the name of the source that has the option `split`, for messages.

    Raises:
      ConfigurationError: if the folder is no such data set, or has no such split.
    """
    folder = _folder(Path(user_path(path)), split, source)
    if not (folder / STATE).is_file():
        raise ConfigurationError(NO_DATASET.format(folder=folder, missing=STATE, here=Path.cwd()))
    try:
        names = [file["filename"] for file in _read_json(folder / STATE)["_data_files"]]
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{folder / STATE} does not list the data set's files") from error
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise ConfigurationError(f"{folder / STATE} lists files outside of its folder")
    return [folder / name for name in names]


def _folder(folder: Path, split: str | None, source: str) -> Path:
    if not (folder / SPLITS).is_file():
        if split is not None:
            raise ConfigurationError(f"{folder} has no splits; leave out {source}.split = {split!r}")
        return folder
    said = _read_json(folder / SPLITS)
    names = said.get("splits", []) if isinstance(said, dict) else []
    if split not in names:
        raise ConfigurationError(
            f"{folder} has the splits {', '.join(names)}, and {source}.split is {split!r}{nearest(str(split), names)}"
        )
    return folder / str(split)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, LARGEST_STATE))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
