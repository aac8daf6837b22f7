"""How much memory the machine still has for this process."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

_CONTROLLERS = "proc/self/cgroup"


@dataclasses.dataclass(frozen=True, slots=True)
class HostMemory:
    """The bytes that can still be taken, and the name of the limit, in words."""

    available: int
    limit: str


def host_memory(root: Path = Path("/")) -> HostMemory:
    """The least of what the machine has left, swap included, and what is left under the limits of the process's control
    groups (a container's, a batch system's). Files that the kernel only keeps at hand count as free.

    Args:
      root: under which `proc` and `sys` are.
    """
    limits = [_machine(root), *_control_groups(root)]
    return min(limits, key=lambda memory: memory.available)


def _machine(root: Path) -> HostMemory:
    try:
        sizes = _table(root / "proc/meminfo")
        free = (sizes["MemAvailable"] + sizes.get("SwapFree", 0)) * 1024
        return HostMemory(free, "this machine has left")
    except (OSError, KeyError, ValueError):  # no Linux, or one that does not say; then all that it has
        return HostMemory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "this machine has")


def _control_groups(root: Path) -> Iterator[HostMemory]:
    """The control groups around this process that have a limit, in version 1 and in version 2 of Linux's cgroups."""
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
    """Bytes that a group may still take; None where it has no limit."""
    try:
        allowed, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        sizes = _table(folder / "memory.stat")
    except (OSError, ValueError):  # "max" is no limit; a group that cannot be looked at is as none
        return None
    cached = sum(sizes.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
    return max(allowed - max(taken - cached, 0), 0)


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    fields = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in fields if len(words) > 1}
