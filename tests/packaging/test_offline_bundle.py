"""The bundle for machines without network: wheels in parts, put together again, and refused if a part is wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.offline_bundle import bundled

pytestmark = pytest.mark.quick

WHEELS = {"one-1.0-py3-none-any.whl": 3000, "two-2.0-py3-none-any.whl": 5000}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, (name, size) in enumerate(WHEELS.items()):
        (folder / name).write_bytes(np.random.default_rng(number).bytes(size))
    return folder


def _installed(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(bundle / "install.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_parts_have_their_size_and_give_the_wheels_again(wheels: Path, tmp_path: Path) -> None:
    parts = bundled(wheels, tmp_path / "bundle", 4096, "one")
    assert len(parts) > 2
    assert all(part.stat().st_size == 4096 for part in parts[:-1])
    carried = shutil.copytree(tmp_path / "bundle", tmp_path / "carried")
    ended = _installed(carried, f"--only_unpack={tmp_path / 'again'}")
    assert ended.returncode == 0, ended.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "again").iterdir()} == {
        p.name: p.read_bytes() for p in wheels.iterdir()
    }


def test_missing_and_damaged_parts_are_named(wheels: Path, tmp_path: Path) -> None:
    first, second, third = bundled(wheels, tmp_path / "bundle", 4096, "one")[:3]
    first.unlink()
    changed = bytearray(second.read_bytes())
    changed[100] ^= 1
    second.write_bytes(changed)
    third.write_bytes(third.read_bytes()[:7])
    ended = _installed(tmp_path / "bundle", f"--only_unpack={tmp_path / 'again'}")
    assert ended.returncode == 1
    assert f"{first.name} is missing; copy it into" in ended.stderr
    assert f"{second.name} is damaged: its SHA-256 sum is another one" in ended.stderr
    assert f"{third.name} is damaged: it has 7 bytes, and had 4,096" in ended.stderr
    assert not (tmp_path / "again").exists()


def test_what_cannot_be_bundled_is_refused(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none has no wheels \(\*.whl\)"):
        bundled(tmp_path / "none", tmp_path / "bundle", 4096, "one")
    with pytest.raises(ValueError, match="wheels has files already; give a new folder"):
        bundled(wheels, wheels, 4096, "one")
    with pytest.raises(ValueError, match="a part has a positive number of bytes, and not 0"):
        bundled(wheels, tmp_path / "bundle", 0, "one")
