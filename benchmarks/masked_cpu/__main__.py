"""Runs a command of this environment as on a processor without AVX-512, whatever its libraries ask to find out.

    python -m benchmarks.masked_cpu python -m benchmarks.peers --plain-cpu

Variables that restrict libraries (`benchmarks/plain_cpu.py`) reach those that read them. JAX's products of matrices, by
YNNPACK, ask the processor. So here each CPUID instruction of TensorFlow, JAX and NumPy is one that a handler answers,
in copies of their libraries, which are mounted over the libraries for this command alone; and so is /proc/cpuinfo,
without what it says of AVX-512. The first time takes two minutes. It needs Linux, root, gcc and objdump.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from benchmarks.plain_cpu import LEFT_OUT

CPUID, ILLEGAL = b"\x0f\xa2", b"\xf0\x90"
LIBRARIES = ("tensorflow/*.so.2", "jaxlib/*.so", "numpy/_core/*.so", "numpy.libs/*openblas*.so")
HWCAPS = ",".join(f"-AVX512{part}" for part in ("F", "VL", "BW", "DQ", "CD"))


def libraries(packages: Path) -> list[Path]:
    """The libraries of the environment that have a CPUID instruction, or bytes that look like one."""
    found = [path for pattern in LIBRARIES for path in sorted(packages.glob(pattern))]
    return [path for path in found if CPUID in path.read_bytes()]


def instructions(library: Path) -> Iterator[int]:
    """Where the file has a CPUID instruction, in bytes from its beginning."""
    segments = []
    for line in said("readelf", "--segments", "--wide", str(library)):
        if line.split()[:1] == ["LOAD"]:
            offset, address, _, size = (int(number, 16) for number in line.split()[1:5])
            segments.append((offset, address, size))
    for line in said("objdump", "--disassemble", "--no-show-raw-insn", str(library)):
        if line.rstrip().endswith("\tcpuid"):
            at = int(line.partition(":")[0], 16)
            yield next(offset + at - address for offset, address, size in segments if 0 <= at - address < size)


def said(*command: str) -> Iterator[str]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with status {process.returncode}")


def write_masked(library: Path, copy: Path) -> None:
    content = bytearray(library.read_bytes())
    for at in instructions(library):
        assert content[at : at + 2] == CPUID, hex(at)
        content[at : at + 2] = ILLEGAL
    copy.parent.mkdir(parents=True, exist_ok=True)
    part = copy.with_name(copy.name + ".part")
    part.write_bytes(content)
    part.replace(copy)


def masked_cpuinfo() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    kept = [
        " ".join(word for word in line.split(" ") if not word.startswith(LEFT_OUT)) if line[:5] == "flags" else line
        for line in lines
    ]
    return "\n".join(kept) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.masked_cpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("build/masked_cpu"), help="where the copies are kept")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="python stands for that of this environment")
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("a command is missing, such as python -m benchmarks.peers --plain-cpu")
    if missing := [tool for tool in ("gcc", "objdump", "readelf", "unshare", "mount") if shutil.which(tool) is None]:
        parser.error(f"not found: {', '.join(missing)}")
    if os.geteuid() != 0:
        parser.error("only root may mount files over others")
    folder, packages = arguments.folder.resolve(), Path(sysconfig.get_path("purelib"))
    mounted = {path: folder / path.relative_to(packages) for path in libraries(packages)}
    stale = [p for p, copy in mounted.items() if not copy.exists() or copy.stat().st_mtime < p.stat().st_mtime]
    for number, library in enumerate(stale, start=1):
        print(f"masking {library.name}, {number} of {len(stale)}", file=sys.stderr, flush=True)
        write_masked(library, mounted[library])
    handler, cpuinfo = folder / "cpuid.so", folder / "cpuinfo"
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("cpuid.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-o", handler, source], check=True)
    cpuinfo.write_text(masked_cpuinfo(), "utf-8")
    mounts = [f'mount --bind "{copy}" "{path}"' for path, copy in {**mounted, Path("/proc/cpuinfo"): cpuinfo}.items()]
    command = [sys.executable if part == "python" else part for part in arguments.command]
    variables = [f"LD_PRELOAD={handler}", f"GLIBC_TUNABLES=glibc.cpu.hwcaps={HWCAPS}"]
    script = " && ".join([*mounts, 'exec env "$@"'])
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", script, "sh", *variables, *command])


if __name__ == "__main__":
    main()
