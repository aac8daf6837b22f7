"""The largest cache is found where Linux says it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.mesh_impl.host.largest_cache import largest_cache

pytestmark = pytest.mark.quick


def test_the_largest_of_the_first_processors_caches(tmp_path: Path) -> None:
    assert largest_cache(tmp_path) == 0
    for index, size in enumerate(["32K", "2M", "1024K", "100"]):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert largest_cache(tmp_path) == 2 << 20


def test_a_cache_of_unknown_size_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache/index0"
    folder.mkdir(parents=True)
    (folder / "size").write_text("\n")
    assert largest_cache(tmp_path) == 0
