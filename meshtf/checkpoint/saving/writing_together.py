"""Writes one checkpoint's folder from all processes of a cluster: each writes its own slices, and all succeed or none.

Process 0 makes a temporary folder. After a first meeting every process writes its files there. After a second meeting
process 0 joins them and renames the folder. At each meeting a process may report a failure, and then all processes
raise it. The folder is renamed only if all processes have written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from meshtf.checkpoint.atomic_folder import WRITING, atomic_folder, synchronize
from meshtf.cluster.cluster import Cluster
from meshtf.errors import CheckpointError, ClusterError, ProcessLostError
from meshtf.files.appearing import appears

LONGEST_WAIT = 6 * 3600.0
"""The seconds for which processes wait for one another. One may have to write for hours after the others."""

_NOT_SHARED = "process {process} ({address}) does not see the file that process 0 wrote there"


class ElsewhereError(OSError):
    """A failure in one or more processes, which all processes raise."""


def write_together(
    cluster: Cluster, folder: Path, write_own: Callable[[Path], None], finish: Callable[[Path], None]
) -> None:
    """Writes a folder from every process of a cluster. It appears whole, or not at all. All processes call this.

    Args:
      cluster: the cluster of the processes.
      folder: the folder, on a disk that all share.
      write_own: writes this process's part into a temporary folder.
      finish: the work of process 0 in this folder, after all have written.

    Raises:
      OSError: in every process, for a failure in any process.
    """
    meetings = _Meetings(cluster, cluster.meeting(f"checkpoint {folder.name}"))
    if not cluster.is_leader:
        meetings.hold()
        meetings.hold(_fault(lambda: _write_into(folder.with_name(WRITING + folder.name), write_own, cluster)))
        meetings.hold()
        return
    try:
        with atomic_folder(folder) as temporary:
            meetings.hold()
            meetings.hold(_fault(lambda: write_own(temporary)))
            finish(temporary)
    except (ElsewhereError, ClusterError, ProcessLostError):
        raise  # all know
    except Exception as error:  # any error is reported, since the others must not wait for this process
        meetings.hold(_text(error))
    meetings.hold()


def led_by_process_0(cluster: Cluster, what: str, work: Callable[[], None]) -> None:
    """Lets process 0 work, while the others wait for it. All processes call this.

    Otherwise process 0 would be late at the next step, and the others would give up waiting for it there.

    Args:
      cluster: the cluster of the processes.
      what: the name of the work.
      work: the work of process 0.

    Raises:
      OSError: in every process, if the work failed.
    """
    _Meetings(cluster, cluster.meeting(what)).hold(_fault(work) if cluster.is_leader else "")


def check_folder_is_shared(cluster: Cluster, folder: Path) -> None:
    """Checks, before a run, that every process sees the same folder. All processes call this.

    Raises:
      CheckpointError: in every process, if one sees another folder under this path than process 0.
    """
    name = cluster.meeting(f"folder {folder.name}")
    sign = folder / f".seen-by-process-0-{os.path.basename(name)}-{os.getpid()}" if cluster.is_leader else None
    with contextlib.ExitStack() as held:
        if sign is not None:
            held.enter_context(_sign(sign))
        shown = cluster.gathered(f"{name}/sign", "" if sign is None else sign.name)[0]
        faults = cluster.gathered(f"{name}/seen", "" if appears(folder / shown) else "not seen")
    missing = [i for i, fault in enumerate(faults) if fault]
    if missing:
        named = "; ".join(_NOT_SHARED.format(process=i, address=cluster.addresses[i]) for i in missing)
        raise CheckpointError(
            f"{folder} is not the same folder in all processes: {named}. Give a folder on a disk that all "
            "processes share"
        )


@contextlib.contextmanager
def _sign(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield
    finally:
        path.unlink()


class _Meetings:
    """Meetings of the processes. At each one, every process reports success or a failure.

    A slow disk may need long. A process that is lost meanwhile is noticed at once.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name, self._stage = cluster, name, 0

    def hold(self, fault: str = "") -> None:
        """Holds one meeting. Raises ElsewhereError in all processes if some have a fault."""
        self._stage += 1
        faults = self._cluster.gathered(f"{self._name}/{self._stage}", fault, LONGEST_WAIT)
        addresses = self._cluster.addresses
        told = [f"process {i} ({addresses[i]}): {text}" for i, text in enumerate(faults) if text]
        if told:
            raise ElsewhereError("; ".join(told))


def _write_into(temporary: Path, write_own: Callable[[Path], None], cluster: Cluster) -> None:
    if not appears(temporary):
        raise OSError(f"it does not see the folder {temporary} that process 0 made; is it on a disk that all share?")
    write_own(temporary)
    for path in temporary.glob(own_prefix(cluster) + "*"):
        synchronize(path)


def own_prefix(cluster: Cluster) -> str:
    """Returns the prefix of the names of this process's files, before they are joined to one checkpoint."""
    return f"process_{cluster.process_index:05d}"


def _fault(write: Callable[[], None]) -> str:
    try:
        write()
    except Exception as error:  # any error is reported, since the others must not wait for this process
        return _text(error)
    return ""


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "message", None) or str(error) or type(error).__name__
