"""Folders that appear whole or not at all.

Suppose step_8 is written a second time. The new files go into .writing-step_8. Then step_8 becomes .replaced-step_8,
.writing-step_8 becomes step_8, and .replaced-step_8 is deleted. If the process dies between the two renames,
`give_back_replaced` gives the old folder its name back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

WRITING, REPLACED, DELETING = ".writing-", ".replaced-", ".deleting-"


@contextlib.contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yields a temporary folder to write into. It becomes `final` at the end, and is deleted after an error.

    Its content is on the disk before the folder gets its final name. It replaces a folder that has this name already.

    Raises:
      OSError: if the folder cannot be made or renamed.
    """
    temporary = final.with_name(WRITING + final.name)
    _remove(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in temporary.rglob("*"):
            synchronize(path)
        synchronize(temporary)
        _put_in_place(temporary, final)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            _remove(temporary)
        raise


def delete_folder(folder: Path) -> None:
    """Deletes a folder. It renames the folder first, so that a half deleted folder never looks complete."""
    doomed = folder.with_name(DELETING + folder.name)
    _remove(doomed)
    folder.rename(doomed)
    _remove(doomed)


def remove_unfinished(parent: Path) -> list[Path]:
    """Removes the folders that an interrupted process left in `parent`, and returns their paths.

    A folder that was about to be replaced gets its name back.
    """
    give_back_replaced(parent)
    removed = [path for path in sorted(parent.glob(".*")) if path.name.startswith((WRITING, REPLACED, DELETING))]
    for path in removed:
        _remove(path)
    return removed


def give_back_replaced(parent: Path) -> None:
    """Restores the name of a folder that an interrupted process was about to replace."""
    for path in parent.glob(f"{REPLACED}*"):
        final = path.with_name(path.name.removeprefix(REPLACED))
        if not final.exists():
            path.rename(final)


def _put_in_place(temporary: Path, final: Path) -> None:
    replaced = final.with_name(REPLACED + final.name)
    _remove(replaced)
    if final.exists():
        final.rename(replaced)
    try:
        temporary.rename(final)
    except BaseException:
        if replaced.exists() and not final.exists():
            replaced.rename(final)
        raise
    synchronize(final.parent)
    _remove(replaced)


def synchronize(path: Path) -> None:
    """Returns when the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Removes a folder with all its content, or a file, or a link without its target."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
