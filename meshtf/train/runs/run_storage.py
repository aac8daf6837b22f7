"""A run on remote storage: which files are sent, which are fetched, and which process may write."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import platform
import secrets
import shutil
from pathlib import Path
from typing import Any

from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint
from meshtf.checkpoint.manifest import MANIFEST
from meshtf.checkpoint.remote_checkpoints import RemoteCheckpoints
from meshtf.errors import DamagedCheckpointError
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder
from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.strict_json import json_text

CHECKPOINTS = "checkpoints"
SUPERSEDED = "superseded_"
UNSENT = "unsent_"

_WRITER, _LOCK = ".writer", ".lock"
_EVALUATIONS = "evaluations.jsonl"

_ANOTHER = """\
another training also writes to {folder}: {host}, process {process}, which began later. This one stops, because the
two would destroy each other's files."""

_SENT_NOW = """\
sent now:      the checkpoint of step {step}, which an earlier process could not write to {place}"""

_KEPT_HERE = """\
not sent:      the checkpoint of step {step}, which an earlier process could not write to {place}: {reason}.
               It is kept in {path}"""
_WRITTEN_SINCE = "another training has written there since"


@dataclasses.dataclass
class RunStorage:
    """The remote folder of a run.

    Its files are made in a local folder. An object store cannot append to a file, so changed files are written again as
    a whole: before each checkpoint, and at the end.

    Only one process may write. It writes a random `claim` into `.writer` on the storage and in the local folder. If the
    two differ, another process has written since.

    Attributes:
      remote: the run's folder.
      passing: the local folder, if it is to be deleted with this object.
    """

    remote: RemoteFolder
    passing: PassingFolder | None = None
    _sent: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    _claim: str | None = None

    def fetch(self, path: Path) -> None:
        """Replaces the files in a local folder by the run's, except checkpoints and other files in subfolders.

        A checkpoint that could not be sent before is sent first, if nobody else has written to the storage since.
        Otherwise it is kept on this machine.

        Raises:
          OSError: if the storage cannot be read or written, or the folder not written.
          SaveError: if such a checkpoint cannot be sent now either.
        """
        self._send_the_unsent(path)
        for old in path.iterdir():
            if old.name in (_LOCK, _WRITER) or old.name.startswith(UNSENT):
                continue
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink()
        for name in self.remote.files():
            if "/" not in name and not name.startswith("."):
                self.remote.download(name, path / name)
                self._sent[name] = _state(path / name)

    def _send_the_unsent(self, path: Path) -> None:
        folder = CheckpointFolder(
            path / CHECKPOINTS,
            remote=RemoteCheckpoints(self.remote / CHECKPOINTS, functools.partial(self._send_again, path)),
        )
        folder.give_back_replaced()
        for step in folder.unsent():
            reason = self._reason_not_to_send(path, folder.path(step))
            if reason is None:
                folder.send(step)
                print(_SENT_NOW.format(step=step, place=self.remote), flush=True)
                continue
            kept = next(to for n in itertools.count(1) if not (to := path / f"{UNSENT}{n}").exists())
            kept.mkdir()
            folder.path(step).rename(kept / folder.path(step).name)
            print(_KEPT_HERE.format(step=step, place=self.remote, reason=reason, path=kept), flush=True)

    def _reason_not_to_send(self, path: Path, checkpoint: Path) -> str | None:
        if _facts_in(_here(path / _WRITER)).get("claim", "") != _facts_in(self._there(_WRITER)).get("claim"):
            return _WRITTEN_SINCE
        try:
            SavedCheckpoint.open(checkpoint).verify()
        except DamagedCheckpointError as error:
            return str(error)
        return None

    def _send_again(self, path: Path) -> None:
        """Writes the files that go with a checkpoint of an earlier process, except the file that other programs
        also write.
        """
        for own in sorted(path.iterdir()):
            if own.is_file() and not own.name.startswith(".") and own.name != _EVALUATIONS:
                self.remote.write(own.name, own.read_bytes())

    def claim(self, path: Path) -> None:
        """Claims the storage for this process. Another process that writes fails at its next write.

        Args:
          path: the run's folder on this machine, which remembers who wrote last.
        """
        self._claim = secrets.token_hex(16)
        facts = json_text({"claim": self._claim, "host": platform.node(), "process": os.getpid()}).encode()
        replace_file(path / _WRITER, facts)
        self.remote.write(_WRITER, facts)

    def send(self, path: Path) -> None:
        """Writes the files that have changed, except checkpoints.

        Raises:
          ConfigurationError: if another training writes there.
          OSError: if the storage cannot be written.
        """
        self._check_claim()
        for folder, inner, names in os.walk(path):
            here = Path(folder)
            left_out = (CHECKPOINTS, SUPERSEDED, UNSENT, ".")
            inner[:] = [name for name in inner if here != path or not name.startswith(left_out)]
            for name in sorted(names):
                own = (here / name).relative_to(path).as_posix()
                if not name.startswith(".") and self._sent.get(own) != (state := _state(here / name)):
                    self.remote.write(own, (here / name).read_bytes())
                    self._sent[own] = state

    def set_aside(self) -> RemoteFolder | None:
        """Moves the existing run into a subfolder. Returns None if there is no run.

        If the process is interrupted, every file is where it was, or in both places.
        """
        files = [name for name in self.remote.files() if not name.startswith((SUPERSEDED, "."))]
        if not files:
            return None
        taken = {name.partition("/")[0] for name in self.remote.files()}
        aside = next(name for n in range(1, len(taken) + 2) if (name := f"{SUPERSEDED}{n}") not in taken)
        for name in files:
            self.remote.copy(name, f"{aside}/{name}")
        # Manifests are deleted first, so that no checkpoint without all of its files looks whole.
        self.remote.delete(sorted(files, key=lambda name: not name.endswith(f"/{MANIFEST}")))
        self._sent.clear()
        return self.remote / aside

    def _check_claim(self) -> None:
        if self._claim is None:
            return
        facts = _facts_in(self._there(_WRITER))
        if facts.get("claim", self._claim) != self._claim:
            raise ConfigurationError(
                _ANOTHER.format(folder=self.remote, host=facts.get("host"), process=facts.get("process"))
            )

    def _there(self, name: str) -> bytes:
        try:
            return self.remote.read(name)
        except FileNotFoundError:
            return b""


def _here(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _facts_in(writer: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(writer)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
