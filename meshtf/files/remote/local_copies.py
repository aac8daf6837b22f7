"""Local copies of remote files, cached until the remote files change."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
from pathlib import Path

from meshtf.files.remote.failures import StorageError
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import lasting_folder
from meshtf_programs.user_paths import user_path

CACHE = Path("~/.cache/meshtf/files")

_WILDCARD = re.compile(r"[*?\[]")


def local_copies(pattern: str, cache: Path = CACHE) -> list[Path]:
    """Returns local copies of the files that match a pattern such as `s3://bucket/texts/*.txt`, sorted by remote name.

    If a file has the pattern as its exact name, only this file is returned.

    Raises:
      OSError: if the storage cannot be read, or the copies not written.
    """
    parts = pattern.split("/")
    if _WILDCARD.search(parts[-1]):
        own_folder = RemoteFolder.open("/".join(parts[:-1]))
        if not _WILDCARD.search("/".join(parts[3:-1])) and own_folder.has(parts[-1]):
            return [_copied(own_folder, parts[-1], lasting_folder(user_path(cache), own_folder))]
    first = next((i for i, part in enumerate(parts) if i > 2 and _WILDCARD.search(part)), len(parts) - 1)
    folder, names = RemoteFolder.open("/".join(parts[:first])), "/".join(parts[first:])
    found = folder.glob(names) if _WILDCARD.search(names) else [names] * folder.has(names)
    return [_copied(folder, name, lasting_folder(user_path(cache), folder)) for name in found]


def local_copy(url: str, cache: Path = CACHE) -> Path:
    """Returns a copy of a file such as `s3://bucket/runs/mine.gin`.

    Raises:
      FileNotFoundError: if there is none.
      OSError: as `local_copies`.
    """
    folder, _, name = url.rpartition("/")
    remote = RemoteFolder.open(folder)
    return _copied(remote, name, lasting_folder(user_path(cache), remote))


def _copied(remote: RemoteFolder, name: str, folder: Path) -> Path:
    """Copies one file, unless a copy of its present version exists."""
    if ".." in name.split("/"):  # anyone may have chosen this name, and the copy would be outside of the folder
        raise StorageError(errno.EINVAL, f"{remote}/{name} is not copied, because its name contains ..")
    local, version = folder / name, remote.version(name)
    mark = local.with_name(f".version-{hashlib.sha256(local.name.encode()).hexdigest()[:16]}")
    if local.is_file() and mark.is_file() and mark.read_text() == version:
        return local
    local.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        mark.unlink()
    # Each process uses its own folder, since others may copy the same file.
    with tempfile.TemporaryDirectory(prefix=".bringing-", dir=local.parent) as passing:
        remote.download(name, Path(passing) / "file")
        os.replace(Path(passing) / "file", local)
        (Path(passing) / "version").write_text(version)
        os.replace(Path(passing) / "version", mark)
    return local
