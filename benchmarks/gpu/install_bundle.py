"""Installs a bundle of wheels on a machine without network: python install.py [--target=FOLDER] [REQUIREMENT ...].

It needs only Python with pip. It first checks all parts, and installs nothing if one is missing or damaged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def faults(folder: Path, parts: list[dict[str, str | int]]) -> list[str]:
    """A line for each part that is missing or damaged."""
    found: list[str] = []
    for part in parts:
        path = folder / str(part["name"])
        if not path.is_file():
            found.append(f"{part['name']} is missing; copy it into {folder}")
        elif path.stat().st_size != part["bytes"]:
            found.append(f"{part['name']} is damaged: it has {path.stat().st_size:,} bytes, and had {part['bytes']:,}")
        elif sum_of(path) != part["sha256"]:
            found.append(f"{part['name']} is damaged: its SHA-256 sum is another one; copy it again")
    return found


def sum_of(path: Path) -> str:
    """The SHA-256 sum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def unpack(folder: Path, parts: list[dict[str, str | int]], output: Path) -> None:
    """Joins the parts, and unpacks the wheels into a folder."""
    with tempfile.TemporaryFile(dir=output) as whole:
        for part in parts:
            with open(folder / str(part["name"]), "rb") as file:
                while block := file.read(1 << 20):
                    whole.write(block)
        whole.seek(0)
        with tarfile.open(fileobj=whole) as tar:
            tar.extractall(output, filter="data")


def main() -> int:
    """Installs, and returns the exit status."""
    manifest = json.loads((FOLDER / "parts.json").read_text())
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements", nargs="*", default=[manifest["requirement"]])
    parser.add_argument("--target", help="a folder for PYTHONPATH; without, the environment of this Python")
    parser.add_argument("--only_unpack", type=Path, help="a folder that gets the wheels; nothing is installed")
    arguments = parser.parse_args()
    wrong = faults(FOLDER, manifest["parts"])
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if arguments.only_unpack is not None:
        arguments.only_unpack.mkdir(parents=True, exist_ok=True)
        unpack(FOLDER, manifest["parts"], arguments.only_unpack)
        return 0
    with tempfile.TemporaryDirectory() as wheels:
        unpack(FOLDER, manifest["parts"], Path(wheels))
        command = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", wheels]
        target = [] if arguments.target is None else ["--target", arguments.target]
        return subprocess.run([*command, *target, *arguments.requirements], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
