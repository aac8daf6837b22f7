"""Many random programs in one graph, lowered and run at once on virtual CPUs: what costs most is the first call."""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import tensorflow as tf
from random_programs.builder import RejectedError
from random_programs.checking import check_values, describe
from random_programs.generate import draw_layout, random_program
from random_programs.program import Program

import meshtf as mtf
from meshtf.ops.variables.program_step import program_step

_TIMEOUT_SECONDS = 60.0

Drawn: TypeAlias = tuple[Program, mtf.LayoutRules, mtf.LayoutRules]
"""A program, its layout, and its variables' layout between steps."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What to run: a mesh, the order of its devices, and for each program the case that is in it and a seed."""

    mesh_shape: str
    devices: tuple[int, ...]
    cases: tuple[str, ...]
    seed: int

    def alone(self) -> list[Batch]:
        """Each program in a batch of its own."""
        return [dataclasses.replace(self, cases=(case,)) for case in self.cases]

    def __str__(self) -> str:
        return (
            f'Batch(mesh_shape="{self.mesh_shape}", devices={self.devices}, cases={self.cases}, seed={self.seed}); '
            "run it again with random_programs.emission.run_batch"
        )


def run_batch(batch: Batch) -> list[str]:
    """Runs a batch. A message for each program that gave something else than it should.

    A CollectiveError goes through: no more can be run in this process.
    """
    mesh_shape = mtf.convert_to_shape(batch.mesh_shape)
    mesh = mtf.Mesh(mtf.Graph("batch"))
    with mesh.graph:
        program_step(mesh)
        drawn = [_drawn(batch, case, mesh, mesh_shape) for case in batch.cases]
    programs = [program for program, _, _ in drawn]
    mesh_impl = mtf.SpmdMeshImpl(
        mesh_shape,
        _joined(rules for _, rules, _ in drawn),
        [f"CPU:{d}" for d in batch.devices],
        parameter_layout=_joined(rules for _, _, rules in drawn),
        collective_timeout_seconds=_TIMEOUT_SECONDS,
    )
    lowering = mtf.Lowering(mesh.graph, {mesh: mesh_impl})
    fetches = [x for program in programs for x in program.fetches]
    values = lowering.run(fetches, {name: x for program in programs for name, x in program.feeds.items()})
    assert isinstance(values, list)
    assert lowering.execution(fetches).program.trace_count == 1, "the per-core program was traced more than once"
    return _differences(drawn, values, lowering, mesh_shape, batch)


def _joined(layouts: Iterable[mtf.LayoutRules]) -> mtf.LayoutRules:
    return mtf.LayoutRules([rule for rules in layouts for rule in rules.rules])


def _drawn(batch: Batch, case: str, mesh: mtf.Mesh, mesh_shape: mtf.Shape) -> Drawn:
    rng = random.Random(zlib.crc32(f"{case} {batch.seed}".encode()))
    prefix = f"{batch.cases.index(case)}_"
    for _ in range(20):
        try:
            program = random_program(rng, mesh, mesh_shape, case, prefix, longest=3)
        except RejectedError:
            continue
        rules = draw_layout(rng, program, mesh_shape)
        return program, rules, draw_layout(rng, program, mesh_shape) if rng.randrange(3) == 0 else rules
    raise AssertionError(f"no program with case {case!r} was found")


def _differences(
    drawn: Sequence[Drawn],
    values: Sequence[tf.Tensor],
    lowering: mtf.Lowering,
    mesh_shape: mtf.Shape,
    batch: Batch,
) -> list[str]:
    found, start = [], 0
    variables = {name: lowering.variables[name] for name in lowering.variables}
    for program, rules, _ in drawn:
        own = values[start : start + len(program.fetches)]
        start += len(program.fetches)
        try:
            check_values(program, [x.numpy() for x in own], variables)
        except AssertionError as error:
            more = f", devices {batch.devices}"
            found.append(f"{error}\n{describe(program, mesh_shape, rules, more)}\n{batch}")
    return found
