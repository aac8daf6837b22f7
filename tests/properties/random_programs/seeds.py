"""One random program for each seed, alone on the interpreter: drawn, run under several layouts, and run again."""

from __future__ import annotations

import random
import traceback

import meshtf as mtf
from meshtf.ops.variables.program_step import count_step
from tests.properties.random_programs.builder import WIDE, WIDE_ANY_SIZE, RejectedError
from tests.properties.random_programs.cases import EVERY_CASE
from tests.properties.random_programs.checking import check_on_interpreter
from tests.properties.random_programs.generate import draw_layouts, random_program
from tests.properties.random_programs.program import Program

MESHES = ["all:1", "rows:2;cols:2", "rows:2;cols:4", "all:8", "x:2;y:2;z:2", "all:3", "rows:2;one:1;cols:3"]
LARGE_MESHES = ["all:12", "rows:3;cols:4", "rows:2;cols:8", "all:16", "rows:8;cols:8", "pods:4;rows:16", "x:4;y:4;z:4"]
_LAYOUTS, _TRIES = 3, 60

AGAIN = "run it again with: python -m tests.properties.random_programs {}"


def case_of(seed: int) -> str:
    """The case that a seed's program is drawn around: consecutive seeds have all cases in turn.

    Every second turn is of sizes that layouts do not divide.
    """
    return list(EVERY_CASE)[seed % len(EVERY_CASE)]


def draw(
    seed: int, rng: random.Random, mesh: mtf.Mesh, mesh_shape: mtf.Shape, prefix: str = "", longest: int = 8
) -> Program:
    """The program of a seed, in the mesh's graph. What it names begins with the prefix.

    Raises:
      RejectedError: none was found around its case.
      DrawingError: a step could not be built.
    """
    space = WIDE_ANY_SIZE if seed // len(EVERY_CASE) % 2 else WIDE
    for _ in range(_TRIES):
        try:
            return random_program(rng, mesh, mesh_shape, case_of(seed), prefix, longest, space)
        except RejectedError:
            continue
    raise RejectedError(f"no program with case {case_of(seed)!r} was found")


def failure_of(seed: int, mesh_shape: str | None = None) -> str | None:
    """Runs the program of a seed on the interpreter, under several layouts; what is wrong, or None.

    The mesh is drawn too unless it is given.
    """
    rng, mesh = random.Random(seed), mtf.Mesh(mtf.Graph("program"))
    shape = mtf.convert_to_shape(rng.choice(MESHES * 2 + LARGE_MESHES) if mesh_shape is None else mesh_shape)
    try:
        with mesh.graph:
            program = draw(seed, rng, mesh, shape)
            count_step(mesh)
        for _ in range(_LAYOUTS):
            check_on_interpreter(program, shape, *draw_layouts(rng, program, shape))
    except Exception:
        return f"seed {seed}: {traceback.format_exc()}\n{AGAIN.format(seed)}"
    return None
