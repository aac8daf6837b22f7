"""The memory that is still available to this process."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_CONTROLLERS = "proc/self/cgroup"


@dataclasses.dataclass(frozen=True, slots=True)
class HostMemory:
    """The available bytes, and a description of the limit for messages."""

    available: int
    limit: str


def host_memory(root: Path = Path("/")) -> HostMemory:
    """The memory available to this process.

    It is the least of the machine's available memory, including swap, and the remainders under the limits of control
    groups (of a container or a batch system). Files that the kernel caches count as free.

    Args:
      root: the folder with `proc` and `sys`.
    """
    limits = [_machine(root), *_control_groups(root)]
    return min(limits, key=lambda memory: memory.available)


def _machine(root: Path) -> HostMemory:
    try:
        sizes = _table(root / "proc/meminfo")
        free = (sizes["MemAvailable"] + sizes.get("SwapFree", 0)) * 1024
        return HostMemory(free, "this machine has left")
    except (OSError, KeyError, ValueError):  # not Linux, or no such figures: all memory of the machine
        return HostMemory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "this machine has")


def _control_groups(root: Path) -> Iterator[HostMemory]:
    """The control groups of this process that have a limit, in version 1 and version 2 of Linux's cgroups."""
    try:
        lines = [line.split(":", 2) for line in (root / _CONTROLLERS).read_text().splitlines()]
    except OSError:
        return
    for number, controllers, path in (line for line in lines if len(line) == 3):
        if number == "0":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        own = top / path.strip("/")
        for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(top))):
            left = _left(folder, *names)
            if left is not None:
                yield HostMemory(left, f"the limit of the control group {path} leaves")


def _left(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    """The bytes that a group may still use; None if it has no limit."""
    try:
        allowed, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        sizes = _table(folder / "memory.stat")
    except (OSError, ValueError):  # "max" means no limit; an unreadable group is ignored
        return None
    cached = sum(sizes.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    return max(allowed - max(taken - cached, 0), 0)


def _table(path: Path) -> dict[str, int]:
    """Parses lines of a name and a number."""
    fields = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in fields if len(words) > 1}
