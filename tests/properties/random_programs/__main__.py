"""Runs random programs by their seeds, and prints those that give something else than they should.

python -m tests.properties.random_programs 17 18                   on the interpreter
python -m tests.properties.random_programs --count=500 17          these and the following seeds
python -m tests.properties.random_programs --mesh_shape="rows:2;cols:2" --devices=3,1,0,2 17
"""

from __future__ import annotations

import argparse
import sys

import meshtf as mtf
from tests.properties.random_programs.emission import Batch
from tests.properties.random_programs.seeds import failure_of
from tests.properties.random_programs.workers import run_batches


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--count", type=int, default=1, help="of consecutive seeds, from each on")
    parser.add_argument("--mesh_shape", help="by default one that is drawn; needed with --devices")
    parser.add_argument("--devices", help="numbers of virtual CPUs, in the order of the mesh")
    parser.add_argument("--by_runtime", action="store_true", help="collectives, in place of memory that is shared")
    arguments = parser.parse_args()
    seeds = [seed + k for seed in arguments.seeds for k in range(arguments.count)]
    if arguments.devices:
        devices = tuple(map(int, arguments.devices.split(",")))
        batch = Batch(arguments.mesh_shape, devices, tuple(seeds), shares_memory=not arguments.by_runtime)
        failures = run_batches([batch], workers=1)
        for failure in failures:
            print(failure, flush=True)
    else:
        mtf.virtual_cpus(1)
        failures = []
        for seed in seeds:
            failure = failure_of(seed, arguments.mesh_shape)
            if failure is not None:
                failures.append(failure)
                print(failure, flush=True)
    print(f"{len(seeds)} programs, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
