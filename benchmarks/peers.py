"""Compares meshtf with other systems, each workload in one run. `make bench` writes the tables into docs/benchmarks.md.

    python -m benchmarks.peers
    python -m benchmarks.peers --workloads=decoding,resnet --rounds=3
    python -m benchmarks.peers --plain-cpu

The tables are on the page between comments with the workload's name. By default, all workloads that have a place on the
page are measured. Each table is written with its picture as soon as it is measured; tables of other workloads stay. A
table has every program's last loss, so that no program is fast but wrong. A program with a different model checks its
results itself.

With `--plain-cpu`, the libraries of all systems use the kernels for a CPU without AVX-512, as far as this is
configurable. These tables have separate places.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import keras
import keras_hub
import matplotlib as mpl

from benchmarks import floors
from benchmarks.measuring.machine import machine
from benchmarks.measuring.other_programs import ProcessorTime
from benchmarks.measuring.plain_cpu import assignments, restricted, this_cpu_is_plain
from benchmarks.measuring.side_by_side import Row, side_by_side
from benchmarks.measuring.tables import drawn, has_place, place_of, put, section
from benchmarks.workloads import (
    decoding,
    digits,
    experts,
    perceptron,
    resnet,
    small_transformer,
    wide_transformer,
)
from benchmarks.workloads.workload import Workload

WORKLOADS = {
    "transformer": small_transformer.WORKLOAD,
    "wide_transformer": wide_transformer.WORKLOAD,
    "perceptron": perceptron.WORKLOAD,
    "resnet": resnet.WORKLOAD,
    "experts": experts.WORKLOAD,
    "decoding": decoding.WORKLOAD,
    "digits": digits.WORKLOAD,
}
PAGE = Path(__file__).parents[1] / "docs/benchmarks.md"
PLAIN = "as on a CPU without AVX-512"


def measured(workload: Workload, names: list[str], rounds: int) -> tuple[dict[str, Row], float | None]:
    """A row for each program, and the share of the processors that other programs used meanwhile."""
    before = ProcessorTime.now()
    rows = side_by_side(workload.module, names, workload.steps, rounds, workload.warm_up)
    return rows, ProcessorTime.now().others_since(before)


def head(*, is_plain: bool) -> str:
    """The machine and the versions. `is_plain` tells whether libraries used the kernels for a CPU without AVX-512."""
    how = "" if this_cpu_is_plain() else f" (`{assignments()}`)"
    kernels = f", {PLAIN}{how}" if is_plain else ""
    versions = f"JAX {jax.__version__}, Keras {keras.__version__}, KerasHub {keras_hub.__version__}"
    return f"{machine()}{kernels}; {versions}"


def chosen(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(WORKLOADS))
    if unknown:
        raise argparse.ArgumentTypeError(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workloads", type=chosen, help=f"some of {','.join(WORKLOADS)}; by default all that the page has a place for"
    )
    parser.add_argument("--rounds", type=int, help="by default what each workload says")
    parser.add_argument("--only", nargs="*", help="programs whose names hold one of these, and each table's first")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the tables are put")
    parser.add_argument("--plain-cpu", action="store_true", help="with the kernels of a CPU without AVX-512")
    arguments = parser.parse_args()
    page, is_plain = arguments.page, arguments.plain_cpu
    places = {name: place_of(name, is_plain=is_plain) for name in WORKLOADS}
    lacking = [name for name in WORKLOADS if not has_place(page, places[name])]
    names = arguments.workloads or [name for name in WORKLOADS if name not in lacking]
    if without := [places[name] for name in names if name in lacking]:
        parser.error(f"{page} has no <!-- name --> to <!-- end of name --> for {', '.join(without)}: write them there")
    if is_plain and not this_cpu_is_plain():
        os.environ.update(restricted(os.environ))  # for the processes that this one starts
    pictures = page.parent / "benchmarks"
    pictures.mkdir(exist_ok=True)
    failed = []
    if not arguments.workloads and not is_plain:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            put(page, "floors", pool.submit(floors.text).result())
    for name in names:
        workload, place = WORKLOADS[name], places[name]
        print(f"{workload.title}:", file=sys.stderr)
        programs = list(sys.modules[workload.module].PROGRAMS)
        if arguments.only:
            programs[1:] = [each for each in programs[1:] if any(part in each for part in arguments.only)]
        try:
            rows, others = measured(workload, programs, arguments.rounds or workload.rounds)
        except Exception:  # from any of the systems; the other workloads are still measured
            traceback.print_exc()
            failed.append(name)
            continue
        with mpl.rc_context({"svg.hashsalt": "meshtf"}):
            drawn(workload.title + (f", {PLAIN}" if is_plain else ""), rows).savefig(
                pictures / f"{place}.svg", metadata={"Date": None}
            )
        text = section(head(is_plain=is_plain), workload, rows, others, f"benchmarks/{place}.svg")
        put(page, place, text)
        print(text, flush=True)
    if failed:
        raise SystemExit(f"not measured, since a program failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
