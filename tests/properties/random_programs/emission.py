"""Many random programs in one graph, lowered and run at once on virtual CPUs: what costs most is the first call."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

import meshtf as mtf
from meshtf.layout import Axes
from meshtf.ops.variables.program_step import program_step
from tests.properties.random_programs.builder import RejectedError
from tests.properties.random_programs.checking import check_values, describe
from tests.properties.random_programs.generate import draw_layout, names_in, split_rules
from tests.properties.random_programs.program import Program
from tests.properties.random_programs.seeds import AGAIN, draw

_TRIES = 20
_TIMEOUT_SECONDS = 60.0

Drawn: TypeAlias = tuple[Program, mtf.LayoutRules]
"""A program and its layout."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """What to run: a mesh, the order of its devices, and a program for each seed."""

    mesh_shape: str
    devices: tuple[int, ...]
    seeds: tuple[int, ...]

    def alone(self) -> list[Batch]:
        """Each program in a batch of its own."""
        return [dataclasses.replace(self, seeds=(seed,)) for seed in self.seeds]

    def __str__(self) -> str:
        where = f'--mesh_shape="{self.mesh_shape}" --devices={",".join(map(str, self.devices))}'
        return AGAIN.format(f"{where} {' '.join(map(str, self.seeds))}")


def run_batch(batch: Batch) -> list[str]:
    """Runs a batch. A message for each program that gave something else than it should.

    A CollectiveError goes through: no more can be run in this process.
    """
    mesh_shape = mtf.convert_to_shape(batch.mesh_shape)
    mesh = mtf.Mesh(mtf.Graph("batch"))
    split: dict[str, Axes] = {}
    split_variables: dict[str, Axes] = {}
    with mesh.graph:
        program_step(mesh)
        drawn = [
            _drawn(seed, mesh, mesh_shape, f"{i}_", (split, split_variables)) for i, seed in enumerate(batch.seeds)
        ]
    mesh_impl = mtf.SpmdMeshImpl(
        mesh_shape,
        split_rules(split),
        [f"CPU:{d}" for d in batch.devices],
        parameter_layout=split_rules(split_variables),
        collective_timeout_seconds=_TIMEOUT_SECONDS,
    )
    lowering = mtf.Lowering(mesh.graph, {mesh: mesh_impl})
    fetches = [x for program, _ in drawn for x in program.fetches]
    values = lowering.run(fetches, {name: x for program, _ in drawn for name, x in program.feeds.items()})
    assert isinstance(values, list)
    assert lowering.execution(fetches).program.trace_count == 1, "the per-core program was traced more than once"
    return _differences(drawn, values, lowering, mesh_shape, batch)


def _drawn(
    seed: int,
    mesh: mtf.Mesh,
    mesh_shape: mtf.Shape,
    prefix: str,
    before: tuple[dict[str, Axes], dict[str, Axes]],
) -> Drawn:
    """A program, and its layout, beside those of the programs before and of their variables.

    Names that are a library's, such as `microbatch`, are in several programs, and split as in the first that has them.
    """
    rng, graph, (split, split_variables) = random.Random(seed), mesh.graph, before
    for _ in range(_TRIES):
        count, variables = len(graph.operations), dict(graph.variables)
        program = draw(seed, rng, mesh, mesh_shape, prefix, longest=3)
        try:
            rules = draw_layout(rng, program, mesh_shape, split)
            own = draw_layout(rng, program, mesh_shape, split_variables) if rng.randrange(3) == 0 else rules
        except RejectedError:
            del graph.operations[count:]
            graph.variables = variables
            continue
        for name in names_in(program):
            split.setdefault(name, rules.axes(name))
            split_variables.setdefault(name, own.axes(name))
        return program, rules
    raise AssertionError(f"seed {seed}: no program was found that may be split as those before")


def _differences(
    drawn: Sequence[Drawn],
    values: Sequence[tf.Tensor],
    lowering: mtf.Lowering,
    mesh_shape: mtf.Shape,
    batch: Batch,
) -> list[str]:
    found, start = [], 0
    variables = {name: lowering.variables[name] for name in lowering.variables}
    for program, rules in drawn:
        own = values[start : start + len(program.fetches)]
        start += len(program.fetches)
        try:
            check_values(program, [x.numpy() for x in own], variables)
        except AssertionError as error:
            more = f", devices {batch.devices}"
            found.append(f"{error}\n{describe(program, mesh_shape, rules, more)}\n{batch}")
    return found
