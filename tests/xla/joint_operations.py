"""Small random programs around many operations, with their gradients, as one program: a compiler is asked once."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import meshtf as mtf
from meshtf.layout import Axes
from meshtf.ops.variables.program_step import program_step
from tests.properties.random_programs.builder import RejectedError
from tests.properties.random_programs.generate import draw_layout, draw_shared, random_program
from tests.properties.random_programs.program import Program

_TRIES = 40


def joint_program(cases: Sequence[str], seed: int, mesh_shape: mtf.Shape) -> tuple[mtf.Lowering, list[mtf.Tensor]]:
    """A program for each case, all in one on a mesh on paper, under random layouts; and what it returns."""
    mesh = mtf.Mesh(mtf.Graph("operations"))
    with mesh.graph:
        program_step(mesh)
        programs = [_drawn(case, number, seed, mesh, mesh_shape) for number, case in enumerate(cases)]
    layouts = _layouts(programs, random.Random(seed), mesh_shape)
    lowering = mtf.Lowering(mesh.graph, {mesh: mtf.PlanMeshImpl(mesh_shape, layouts)})
    return lowering, [x for program in programs for x in program.fetches]


def _drawn(case: str, number: int, seed: int, mesh: mtf.Mesh, mesh_shape: mtf.Shape) -> Program:
    rng = random.Random(zlib.crc32(f"{case} {seed}".encode()))
    for _ in range(_TRIES):
        try:
            return random_program(rng, mesh, mesh_shape, case, f"p{number}_", longest=1)
        except RejectedError:
            continue
    raise AssertionError(f"no program with case {case!r} was found")


def _layouts(programs: Sequence[Program], rng: random.Random, mesh_shape: mtf.Shape) -> mtf.LayoutRules:
    shared: dict[str, Axes] = draw_shared(rng, programs, mesh_shape)
    try:
        drawn = [draw_layout(rng, program, mesh_shape, shared) for program in programs]
    except RejectedError:  # what one of them says of a layout leaves no place for a shared one
        whole = dict.fromkeys(shared, ())
        drawn = [draw_layout(rng, program, mesh_shape, whole) for program in programs]
    return mtf.LayoutRules([rule for rules in drawn for rule in rules.rules])
