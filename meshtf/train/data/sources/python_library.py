"""A text that is on every machine where this runs: the source and documentation of Python's library."""

from __future__ import annotations

import dataclasses
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import gin

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Document
from meshtf.train.data.sources.text_files import split_file

SUFFIXES = (".py", ".rst", ".txt")

# Installed packages do not belong to the library. Tests repeat themselves, and have text in many encodings on purpose.
LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})

NO_SOURCE = """\
this Python keeps no source of its library in {folder}, where it should be.
Install a Python that does (python.org's, a system's or pyenv's), or train on files of your own with TextFiles."""


@dataclasses.dataclass(frozen=True)
class PythonLibrary:
    """The library's files, each a document, in the order of their paths.

    Attributes:
      folder: where the interpreter keeps them.

    Raises:
      ConfigurationError: when documents are read: if there are none.
    """

    folder: str

    def __str__(self) -> str:
        return f"the library of Python {platform.python_version()}"

    def documents(self) -> Iterator[Document]:
        root = Path(self.folder)
        paths = sorted(_files_of(root))
        if not paths:
            raise ConfigurationError(NO_SOURCE.format(folder=self.folder))
        for path in paths:
            yield from split_file(root / path, path, "file")


@gin.configurable(module="meshtf.train")
def python_library() -> PythonLibrary:
    """The library of the running interpreter, without tests and installed packages: about 12 MB."""
    return PythonLibrary(sysconfig.get_path("stdlib"))


def _files_of(root: Path) -> Iterator[str]:
    """Yields paths relative to the root, with forward slashes."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        for name in files:
            if name.endswith(SUFFIXES):
                yield (Path(folder) / name).relative_to(root).as_posix()
