"""Folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

WRITING, REPLACED, DELETING = ".writing-", ".replaced-", ".deleting-"


@contextlib.contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `final` at the end, and is gone after an error.

    What it holds is on the disk before the name is. A folder that is there under the name is replaced.

    Raises:
      OSError: it cannot be made, or renamed.
    """
    temporary = final.with_name(WRITING + final.name)
    _remove(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in temporary.iterdir():
            synchronize(path)
        synchronize(temporary)
        _put_in_place(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell of
            _remove(temporary)
        raise


def delete_folder(folder: Path) -> None:
    """Takes the name away first, so that what is half deleted is never taken for the whole."""
    doomed = folder.with_name(DELETING + folder.name)
    _remove(doomed)
    folder.rename(doomed)
    _remove(doomed)


def remove_unfinished(parent: Path) -> list[Path]:
    """Removes what an interrupted process left behind in `parent`, and gives the paths. A folder that was about to be
    replaced gets its name back."""
    give_back_replaced(parent)
    removed = [path for path in sorted(parent.glob(".*")) if path.name.startswith((WRITING, REPLACED, DELETING))]
    for path in removed:
        _remove(path)
    return removed


def give_back_replaced(parent: Path) -> None:
    """A folder that was about to be replaced when the process was interrupted gets its name back."""
    for path in parent.glob(f"{REPLACED}*"):
        final = path.with_name(path.name.removeprefix(REPLACED))
        if not final.exists():
            path.rename(final)


def _put_in_place(temporary: Path, final: Path) -> None:
    replaced = final.with_name(REPLACED + final.name)
    _remove(replaced)
    if final.exists():
        final.rename(replaced)
    temporary.rename(final)
    synchronize(final.parent)
    _remove(replaced)


def synchronize(path: Path) -> None:
    """Returns when what was written to a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Takes away a folder with all that is in it; of a link, or a file, just that."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
