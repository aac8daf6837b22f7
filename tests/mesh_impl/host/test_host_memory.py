"""The memory that is left, by files as Linux has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from meshtf.mesh_impl.host.host_memory import host_memory

GIB = 2**30
MACHINE = f"MemTotal: {32 * GIB // 1024} kB\nMemAvailable: {16 * GIB // 1024} kB\nSwapFree: {1 * GIB // 1024} kB\n"


def memory_v2(limit: int | str, used: int, cached: int = 0) -> dict[str, str]:
    return {"memory.max": str(limit), "memory.current": str(used), "memory.stat": f"anon 5\nactive_file {cached}\n"}


def memory_v1(limit: int, used: int, cached: int = 0) -> dict[str, str]:
    stat = f"cache 0\ntotal_inactive_file {cached}\n"
    return {"memory.limit_in_bytes": str(limit), "memory.usage_in_bytes": str(used), "memory.stat": stat}


@pytest.mark.parametrize(
    ("groups", "folders", "expected", "limit"),
    [
        ("", {}, 17, "this machine has left"),
        ("0::/\n", {"": {}}, 17, "this machine has left"),
        ("0::/\n", {"": memory_v2(4 * GIB, 1 * GIB)}, 3, "the limit of the control group / leaves"),
        (
            "0::/job/step\n",
            {"job": memory_v2(4 * GIB, 1 * GIB), "job/step": memory_v2("max", 0)},
            3,
            "group /job/step ",
        ),
        ("0::/job/step\n", {"job": memory_v2(4 * GIB, 0), "job/step": memory_v2(2 * GIB, GIB, GIB)}, 2, "/job/step"),
        ("0::/job\n", {"job": memory_v2(64 * GIB, 0)}, 17, "this machine has left"),
        ("0::/job\n", {"job": memory_v2(2 * GIB, 3 * GIB)}, 0, "/job leaves"),
        ("0::/gone\n", {}, 17, "this machine has left"),
        ("4:cpu,memory:/job\n0::/\n", {"memory/job": memory_v1(3 * GIB, 2 * GIB, GIB)}, 2, "group /job leaves"),
        (
            "4:memory:/job\n",
            {"memory": memory_v1(2**63 - 4096, GIB), "memory/job": memory_v1(2**63 - 4096, GIB)},
            17,
            "",
        ),
        ("4:cpu:/job\nnonsense\n", {"memory/job": memory_v1(3 * GIB, GIB)}, 17, "this machine has left"),
    ],
)
def test_the_least_of_the_machine_and_its_control_groups(
    groups: str, folders: Mapping[str, Mapping[str, str]], expected: int, limit: str, tmp_path: Path
) -> None:
    files = {"proc/meminfo": MACHINE, "proc/self/cgroup": groups}
    files |= {f"sys/fs/cgroup/{f}/{name}": text for f, texts in folders.items() for name, text in texts.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    memory = host_memory(tmp_path)
    assert memory.available == expected * GIB
    assert limit in memory.limit


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert host_memory(tmp_path).limit == "this machine has"
    assert host_memory(tmp_path).available > 2**20


def test_this_machine() -> None:
    assert 2**20 < host_memory().available < 2**50
