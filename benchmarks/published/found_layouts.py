"""Compares the layout that a search finds with the repository's layouts: steps of four trainings on 8 virtual CPUs.

    python -m benchmarks.published.found_layouts --machine=here.toml
    python -m benchmarks.published.found_layouts --machine=here.toml --only=lm_tiny --steps=2 --rounds=2

The trainings are lm_tiny and moe_tiny unchanged, and small versions of T5 1.1 and a ResNet. Each runs under its own
layout and under the meshtf recipes that fit it, on the mesh 4 x 2. The programs of a training have separate processes
and take turns. The found layout is first, so ratios above 1 are of slower layouts. If others use the machine, CPU times
are more reliable. Without `--machine`, this machine is probed first.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

import benchmarks.published.trainings  # noqa: F401 (images_on_paper is configurable)
import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side
from meshtf.costs import Machine, load_machine, predict
from meshtf.errors import LayoutError
from meshtf.layout_search import LayoutChoice
from meshtf.probe import probe
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import Training, configured_training

CORES = 8
TABLES = ("mesh_shape", "layout", "parameter_layout", "activation_layout")
UNSPLIT = {"mesh_shape": "rows:4;cols:2", "layout": ""}
"""The mesh and the layout with which a search starts."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A training, by its gin files and bindings, and the recipes that fit it."""

    files: Sequence[str]
    bindings: Sequence[str]
    recipes: Sequence[str]

    def training(self, recipe: str = "", tables: dict[str, str | None] | None = None) -> Training:
        """The training under its own layout, a recipe's, or a given one."""
        names = [*self.files, *([f"recipes/{recipe}.gin"] if recipe else [])]
        given = {} if tables is None else {name: tables.get(name) for name in TABLES}
        bindings = [*self.bindings, *(f"Training.{name} = {value!r}" for name, value in given.items())]
        read_configuration([find_gin_file(name) for name in names], bindings)
        return configured_training()

    def tables(self, recipe: str) -> dict[str, str | None]:
        training = self.training(recipe)
        values = {name: getattr(training, name) for name in TABLES}
        return {name: None if value is None else str(value) for name, value in values.items()}


T5 = (
    "vocab_size = 512", "d_model = 128", "d_ff = 256", "num_layers = 2", "num_heads = 4", "d_kv = 32",
    "Training.task = @TextTask()", "TextTask.source = @python_library()", "TextTask.vocabulary = @ByteVocabulary()",
    "TextTask.length = 64", "TextTask.objective = @TextPairs()", "TextTask.arrangement = @Pad()",
    "Training.model = @EncoderDecoder()", "Training.optimizer = @AdafactorOptimizer()", "Training.num_steps = 1",
    "Training.mesh_shape = 'rows:4;cols:2'", "Training.layout = 'batch:rows;heads:cols;d_ff:cols;vocab:cols'",
    "Training.batch_size = 32",
)  # fmt: skip
RESNET = (
    "Training.task = @images_on_paper()", "images_on_paper.size = 32", "images_on_paper.dtype = 'float32'",
    "ResNet50.num_classes = 16", "ResNet50.stage_sizes = (1, 1, 1)", "ResNet50.width = 16", "Training.num_steps = 1",
    "Training.optimizer = @AdamOptimizer()", "AdamOptimizer.learning_rate = 1e-3", "Training.batch_size = 32",
    "Training.mesh_shape = 'rows:4;cols:2'",
)  # fmt: skip
DENSE = ("data", "fsdp", "megatron", "two_dimensional")
T5_BASE = Case(
    ["t5_1_1.gin"],
    [
        *T5, "vocab_size = 32128", "d_model = 768", "d_ff = 2048", "num_layers = 12", "num_heads = 12", "d_kv = 64",
        "TextTask.length = 512", "Training.batch_size = 2048", "Training.mesh_shape = 'rows:128;cols:4'",
    ],
    DENSE,
)  # fmt: skip
"""A training that is only planned: T5 1.1 base on 512 cores."""
CASES = {
    "lm_tiny": Case(["lm_tiny.gin"], [], DENSE),
    "moe_tiny": Case(["moe_tiny.gin"], [], ["experts", "experts_tensor", *DENSE]),
    "t5": Case(["t5_1_1.gin"], T5, DENSE),
    "resnet": Case(["resnet50.gin"], RESNET, ["data"]),
}


def name_of(case: str, tables: dict[str, str | None]) -> str:
    """The name of a program, such as `lm_tiny layout=batch:rows mesh_shape=rows:8`. Another process can make the
    program from it."""
    return " ".join([case, *(f"{name}={tables[name]}" for name in TABLES if tables.get(name) is not None)])


class Programs:
    """A mapping from names of programs to functions that make a step, for `side_by_side`."""

    def __getitem__(self, name: str) -> Callable[[], Step]:
        case, *parts = name.split(" ")
        tables: dict[str, str | None] = {key: value for key, _, value in (part.partition("=") for part in parts)}
        return lambda: _step(CASES[case].training(tables=tables))


PROGRAMS = Programs()


def _step(training: Training) -> Step:
    mtf.virtual_cpus(CORES)
    mesh_impl = mtf.SpmdMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    step = training_step(training, mesh_impl)
    generator = np.random.default_rng(0)
    features = {}
    for name, spec in training.task.inputs(training.batch).items():
        size, kind = spec.shape.to_integer_list, spec.dtype.as_numpy_dtype
        is_whole = spec.dtype.is_integer
        features[name] = (generator.integers(1, 8, size) if is_whole else generator.uniform(size=size)).astype(kind)
    return lambda: step(**features)["loss"]


def found_for(case: Case, on: Machine, mesh_shape: str = UNSPLIT["mesh_shape"]) -> LayoutChoice:
    training = case.training(tables={**UNSPLIT, "mesh_shape": mesh_shape})
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, "", options=training.mesh_options)
    return mtf.auto_layout(training_step(training, mesh_impl), training.mesh_shape, on)


def predicted(case: Case, tables: dict[str, str | None], on: Machine) -> float | None:
    """The predicted seconds of a step; None if the layout is impossible."""
    training = case.training(tables=tables)
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    try:
        return predict(training_step(training, mesh_impl).report(), on).seconds
    except LayoutError as error:
        print(f"left out: {tables['layout']}: {str(error).splitlines()[0]}")
        return None


def compare(name: str, on: Machine, steps: int, rounds: int) -> None:
    case = CASES[name]
    choice = found_for(case, on)
    programs = {name_of(name, choice.layout.bindings()): ("found", choice.best.seconds)}
    for recipe in ("", *case.recipes):
        tables = case.tables(recipe)
        seconds = predicted(case, tables, on)
        if seconds is not None:
            programs.setdefault(name_of(name, tables), (recipe or "own", seconds))
    measured = side_by_side(__spec__.name, list(programs), steps, rounds)
    print(f"\n{name}, predicted:")
    for program, (origin, seconds) in programs.items():
        print(f"  {seconds * 1e3:9.2f} ms  {origin:17} {program.partition(' ')[2]}")
    print(as_table({programs[program][0]: row for program, row in measured.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="trainings whose names have this text")
    parser.add_argument("--machine", default="", help="a machine's file; without, this one is probed")
    parser.add_argument("--steps", type=int, default=5, help="of each program in a round")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    mtf.virtual_cpus(CORES)
    print(machine())
    on = load_machine(arguments.machine) if arguments.machine else probe()
    for name in CASES:
        if arguments.only in name:
            compare(name, on, arguments.steps, arguments.rounds)


if __name__ == "__main__":
    main()
