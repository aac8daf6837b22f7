"""Compares layouts that a search finds with published layouts and with those of meshtf.

The table has the predicted seconds of a step, GiB per core, and the CPU seconds of the search:

    python -m benchmarks.published.layout_search
    python -m benchmarks.published.layout_search --only Lingvo --machine v3

Nothing is run, and no device is needed.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.published.trainings import TRAININGS
from meshtf.errors import LayoutError
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

GIB = 1 << 30
UNSPLIT = ("Training.layout = ''", "Training.parameter_layout = None", "Training.activation_layout = None")
SHIPPED = ("lm_tiny", "moe_tiny")


@dataclasses.dataclass(frozen=True)
class Row:
    """A configuration with its own layout. `gibibytes` is the memory of a core."""

    name: str
    files: Sequence[str]
    bindings: Sequence[str]
    gibibytes: float | None = None

    def program(self, *more: str) -> mtf.Function:
        """One step of training."""
        read_configuration([find_gin_file(name) for name in self.files], [*self.bindings, *more])
        training = configured_training()
        mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
        return training_step(training, mesh_impl)


def rows() -> list[Row]:
    own = [Row(name, [f"{name}.gin"], []) for name in SHIPPED]
    return own + [Row(t.name, t.files, [*t.all_bindings()], t.gibibytes) for t in TRAININGS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    parser.add_argument("--machine", default="v3")
    arguments = parser.parse_args()
    print(machine())
    on = mtf.costs.load_machine(arguments.machine)
    print(f"{'training':36} {'own s':>9} {'GiB':>7} {'found s':>9} {'GiB':>7} {'layouts':>8} {'search s':>9}  layout")
    for row in rows():
        if arguments.only.lower() in row.name.lower():
            report = row.program().report()
            own = mtf.costs.predict(report, on)
            print(f"{row.name:36} {own.seconds:9.4g} {report.memory.peak / GIB:7.2f}", end=" ", flush=True)
            program = row.program(*UNSPLIT)
            began = time.process_time()
            try:
                memory = None if row.gibibytes is None else row.gibibytes * GIB
                found = mtf.auto_layout(program, program.lowering.mesh_shape, on, memory_per_core=memory)
            except LayoutError as error:
                print(f"{error}".splitlines()[0])
                continue
            spent = time.process_time() - began
            best = found.best
            print(f"{best.seconds:9.4g} {best.peak_bytes / GIB:7.2f} {found.layouts_priced:8} {spent:9.1f}", end="  ")
            print("; ".join(f"{k}={v}" for k, v in found.layout.bindings().items() if v is not None), flush=True)


if __name__ == "__main__":
    main()
