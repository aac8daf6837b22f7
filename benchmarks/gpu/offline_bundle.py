"""Packs wheels into parts of a given size, with a script that installs them without a network.

    python -m benchmarks.gpu.offline_bundle WHEELS OUTPUT --part_mib=50 --requirement='meshtf[cuda13]'

The other machine needs only the parts, `parts.json`, `install.py`, and the Python release of the wheels:

    python install.py --target=FOLDER     # or without --target, into the environment of this Python

The script first checks every part, and names a missing or damaged one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

SCRIPT = Path(__file__).with_name("install_bundle.py")
MANIFEST = "parts.json"
_BLOCK = 1 << 20


def bundled(wheels: Path, output: Path, part_bytes: int, requirement: str) -> list[Path]:
    """Writes the bundle, and returns its parts.

    Args:
      wheels: the folder of the wheels.
      output: a folder that does not exist yet, or is empty.
      part_bytes: the most bytes of a part.
      requirement: the requirement that the script installs by default.

    Raises:
      ValueError: if there are no wheels, the output has files, or a part has no bytes.
    """
    found = sorted(wheels.glob("*.whl"))
    if not found:
        raise ValueError(f"{wheels} has no wheels (*.whl)")
    if part_bytes < 1:
        raise ValueError(f"a part has a positive number of bytes, and not {part_bytes}")
    if output.is_dir() and any(output.iterdir()):
        raise ValueError(f"{output} has files already; give a new folder")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        whole = Path(folder) / "wheels.tar"
        with tarfile.open(whole, "w") as tar:  # wheels are compressed already
            for wheel in found:
                tar.add(wheel, wheel.name)
        parts = list(_split(whole, output, part_bytes))
    described = [{"name": p.name, "bytes": p.stat().st_size, "sha256": _sum_of(p)} for p in parts]
    manifest = {"requirement": requirement, "wheels": [w.name for w in found], "parts": described}
    (output / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.copyfile(SCRIPT, output / "install.py")
    return parts


def _split(whole: Path, output: Path, part_bytes: int) -> Iterator[Path]:
    count = -(-whole.stat().st_size // part_bytes)
    with open(whole, "rb") as file:
        for number in range(count):
            part, left = output / f"part-{number:0{len(str(count - 1))}}", part_bytes
            with open(part, "wb") as piece:
                while left and (block := file.read(min(left, _BLOCK))):
                    piece.write(block)
                    left -= len(block)
            yield part


def _sum_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--part_mib", type=float, default=50.0, help="the most MiB of a part")
    parser.add_argument("--requirement", default="meshtf[cuda13]", help="what install.py installs")
    arguments = parser.parse_args()
    try:
        parts = bundled(arguments.wheels, arguments.output, int(arguments.part_mib * 2**20), arguments.requirement)
    except ValueError as error:
        parser.error(str(error))
    whole = sum(part.stat().st_size for part in parts)
    print(f"{arguments.output}: {len(parts)} parts, {whole / 2**20:,.1f} MiB; there: python install.py")


if __name__ == "__main__":
    main()
