"""Runs all tests, the long ones too, room by room: `python -m tests.house.long_run`, or `make test-long`.

A room is a folder of `tests`. It has a pytest of its own, so that no process keeps what earlier rooms compiled. Tests
marked `plain_cpu` run once more, as on a CPU without AVX-512. A line for each run says how many minutes it took, and
how it ended. `build/test-long` has all that the tests printed.

    python -m tests.house.long_run ops xla         these rooms
    python -m tests.house.long_run --at_once=4     more rooms at a time; each takes up to 7 GB
    python -m tests.house.long_run --resume        goes on after a run that was ended, or that had failures
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]
RESULTS = TESTS.parent / "build" / "test-long"
TOP_LEVEL = "top_level"  # the room of the test files that lie in no folder
# Those that take longest begin first, so that none runs alone at the end.
LONGEST = ("cluster", "properties", "xla", "meshtf_programs", "ops", "docs", "train", "bin", "models", "layers")
SUMMARY = re.compile(r"^=+ (.+) in [\d.]+s.* =+$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Run:
    """The tests of one room, or those of them that depend on the CPU's kernels, as on a plain CPU."""

    room: str
    plain_cpu: bool

    @property
    def log(self) -> Path:
        """The file that gets all that the tests print."""
        return RESULTS / f"{self.room}{'_on_plain_cpu' if self.plain_cpu else ''}.log"

    @property
    def passed(self) -> Path:
        """The file that is there once the tests have passed."""
        return self.log.with_suffix(".passed")

    def command(self, seed: int | None) -> Sequence[str]:
        """The command that runs the tests, in a worker that may end: pytest's time limit ends the process."""
        runner = ["tests.plain_cpu", "-m", "plain_cpu"] if self.plain_cpu else ["pytest", "-m", "long or not long"]
        drawn = [] if seed is None else [f"--seed={seed}"]
        return [sys.executable, "-m", *runner, "-n", "1", "--timeout=1800", *drawn, *map(str, files(self.room))]

    def summary(self) -> str:
        """The last counts that pytest printed, or the last line of a run that printed none."""
        text = self.log.read_text(errors="replace")
        return (SUMMARY.findall(text) or text.splitlines()[-1:] or ["printed nothing"])[-1]


def files(room: str) -> Sequence[Path]:
    """The test files of a room."""
    return sorted(TESTS.glob("test_*.py") if room == TOP_LEVEL else (TESTS / room).rglob("test_*.py"))


def is_marked(file: Path) -> bool:
    """Whether the file has a test marked `plain_cpu`. Other files name the marker in texts."""
    return "mark.plain_cpu" in file.read_text()


def rooms() -> Sequence[str]:
    """The names of all rooms, in the order in which they begin."""
    folders = {file.relative_to(TESTS).parts[0] for file in TESTS.glob("*/**/test_*.py")}
    return [*LONGEST, *sorted(folders.difference(LONGEST)), TOP_LEVEL]


def runs(chosen: Sequence[str]) -> Iterator[Run]:
    """The runs of these rooms, or of all where none is chosen: first as the CPU is, then as on a plain one."""
    entered = [room for room in rooms() if not chosen or room in chosen]
    yield from (Run(room, plain_cpu=False) for room in entered)
    yield from (Run(room, plain_cpu=True) for room in entered if any(map(is_marked, files(room))))


def passes(run: Run, seed: int | None) -> bool:
    """Runs the tests, and prints how they ended."""
    run.passed.unlink(missing_ok=True)
    begun = time.monotonic()
    with run.log.open("wb") as log:
        ended = subprocess.run(run.command(seed), stdout=log, stderr=subprocess.STDOUT, cwd=TESTS.parent, check=False)
    if ended.returncode == 0:
        run.passed.touch()
    print(f"{run.log.stem:32}{(time.monotonic() - begun) / 60:6.1f} min  {run.summary()}", flush=True)
    return ended.returncode == 0


def main(arguments: Sequence[str]) -> int:
    """0 where all runs passed, otherwise 1."""
    parser = argparse.ArgumentParser(
        "python -m tests.house.long_run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="*", metavar="room", help=f"{', '.join(rooms())}; all by default")
    parser.add_argument("--at_once", type=int, default=2, metavar="N", help="rooms that run at a time; 2 by default")
    parser.add_argument("--seed", type=int, help="of what the tests draw; by default another in every room, as logged")
    parser.add_argument("--resume", action="store_true", help="leaves out what passed in an earlier run")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.rooms).difference(rooms())):
        parser.error(f"there is no room {', '.join(unknown)}; the rooms are {', '.join(rooms())}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in runs(options.rooms) if not (options.resume and one.passed.exists())]
    with ThreadPoolExecutor(options.at_once) as threads:
        try:
            passed = list(threads.map(lambda one: passes(one, options.seed), chosen))
        except KeyboardInterrupt:
            threads.shutdown(cancel_futures=True)
            raise
    failed = [one for one, it_did in zip(chosen, passed, strict=True) if not it_did]
    for one in failed:
        print(f"failed: {one.log.stem}; see {os.path.relpath(one.log)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
