"""A run on remote storage: what of its folder goes there, what comes from there, and who may write."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import secrets
import shutil
from pathlib import Path

from meshtf.checkpoint.manifest import MANIFEST
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder
from meshtf.train.configuration import ConfigurationError

CHECKPOINTS = "checkpoints"
SUPERSEDED = "superseded_"

_WRITER = ".writer"

_ANOTHER = """\
another training writes to {folder}, too: {host}, process {process}, which began later. This one ends, since the two
would destroy each other's files."""


@dataclasses.dataclass
class RunStorage:
    """The remote folder of a run. Its files are made in a folder of this machine, and written anew as a whole, since
    nothing can be appended to a file of an object store: with each checkpoint, before it, and at the end.

    Attributes:
      remote: the run's folder.
      passing: that of this machine, where it is to be gone with this object.
    """

    remote: RemoteFolder
    passing: PassingFolder | None = None
    _sent: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    _claim: str | None = None

    def fetch(self, path: Path) -> None:
        """Makes a folder of this machine what the run's is, without checkpoints and what is in further folders.

        Raises:
          OSError: the storage cannot be read, or the folder not written.
        """
        for old in path.iterdir():
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            elif old.name != ".lock":
                old.unlink()
        for name in self.remote.files():
            if "/" not in name and not name.startswith("."):
                self.remote.download(name, path / name)
                self._sent[name] = _state(path / name)

    def claim(self) -> None:
        """From now on this process writes, and another that does finds out when it writes next."""
        self._claim = secrets.token_hex(16)
        facts = {"claim": self._claim, "host": platform.node(), "process": os.getpid()}
        self.remote.write(_WRITER, json.dumps(facts).encode())

    def send(self, path: Path) -> None:
        """Writes those files that have changed, checkpoints left out.

        Raises:
          ConfigurationError: another training writes there.
          OSError: the storage cannot be written.
        """
        self._check_claim()
        for folder, inner, names in os.walk(path):
            here = Path(folder)
            inner[:] = [name for name in inner if here != path or not name.startswith((CHECKPOINTS, SUPERSEDED, "."))]
            for name in sorted(names):
                own = (here / name).relative_to(path).as_posix()
                if not name.startswith(".") and self._sent.get(own) != (state := _state(here / name)):
                    self.remote.write(own, (here / name).read_bytes())
                    self._sent[own] = state

    def set_aside(self) -> RemoteFolder | None:
        """Moves what is there into a folder of its own inside; None where nothing is. A process that is interrupted
        leaves all where it was, or in both places."""
        files = [name for name in self.remote.files() if not name.startswith((SUPERSEDED, "."))]
        if not files:
            return None
        taken = {name.partition("/")[0] for name in self.remote.files()}
        aside = next(name for n in range(1, len(taken) + 2) if (name := f"{SUPERSEDED}{n}") not in taken)
        for name in files:
            self.remote.copy(name, f"{aside}/{name}")
        self.remote.delete(sorted(files, key=lambda name: not name.endswith(f"/{MANIFEST}")))
        self._sent.clear()
        return self.remote / aside

    def _check_claim(self) -> None:
        if self._claim is None:
            return
        try:
            facts = json.loads(self.remote.read(_WRITER))
        except (FileNotFoundError, ValueError):
            facts = {}
        if facts.get("claim", self._claim) != self._claim:
            raise ConfigurationError(
                _ANOTHER.format(folder=self.remote, host=facts.get("host"), process=facts.get("process"))
            )


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
