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


class Joint:
    """The programs of a batch in one graph, and layouts that are legal for all of them.

    Names that are a library's, such as `microbatch`, are in several programs, and split as in the first that has them.
    """

    def __init__(self, batch: Batch) -> None:
        self.mesh_shape = mtf.convert_to_shape(batch.mesh_shape)
        self.mesh = mtf.Mesh(mtf.Graph("batch"))
        self.drawn: list[Drawn] = []
        self._split: dict[str, Axes] = {}
        self._split_variables: dict[str, Axes] = {}
        with self.mesh.graph:
            program_step(self.mesh)
            for number, seed in enumerate(batch.seeds):
                self._add(seed, f"{number}_")

    @property
    def layout(self) -> mtf.LayoutRules:
        return split_rules(self._split)

    @property
    def parameter_layout(self) -> mtf.LayoutRules:
        return split_rules(self._split_variables)

    def _add(self, seed: int, prefix: str) -> None:
        rng, graph = random.Random(seed), self.mesh.graph
        for _ in range(_TRIES):
            count, variables = len(graph.operations), dict(graph.variables)
            program = draw(seed, rng, self.mesh, self.mesh_shape, prefix, longest=3)
            try:
                rules = draw_layout(rng, program, self.mesh_shape, self._split)
                own = self._parameter_rules(rng, program, rules)
            except RejectedError:
                del graph.operations[count:]
                graph.variables = variables
                continue
            for name in names_in(program):
                self._split.setdefault(name, rules.axes(name))
                self._split_variables.setdefault(name, own.axes(name))
            self.drawn.append((program, rules))
            return
        raise AssertionError(f"seed {seed}: no program was found that may be split as those before")

    def _parameter_rules(self, rng: random.Random, program: Program, rules: mtf.LayoutRules) -> mtf.LayoutRules:
        """Mostly those of its other tensors."""
        known = [name for name in names_in(program) if name in self._split_variables]
        if rng.randrange(3) and all(rules.axes(name) == self._split_variables[name] for name in known):
            return rules
        return draw_layout(rng, program, self.mesh_shape, self._split_variables)


def run_batch(batch: Batch) -> list[str]:
    """Runs a batch. A message for each program that gave something else than it should.

    A CollectiveError goes through: no more can be run in this process.
    """
    joint = Joint(batch)
    mesh_impl = mtf.SpmdMeshImpl(
        joint.mesh_shape,
        joint.layout,
        [f"CPU:{d}" for d in batch.devices],
        parameter_layout=joint.parameter_layout,
        collective_timeout_seconds=_TIMEOUT_SECONDS,
    )
    lowering = mtf.Lowering(joint.mesh.graph, {joint.mesh: mesh_impl})
    fetches = [x for program, _ in joint.drawn for x in program.fetches]
    values = lowering.run(fetches, {name: x for program, _ in joint.drawn for name, x in program.feeds.items()})
    assert isinstance(values, list)
    assert lowering.execution(fetches).program.trace_count == 1, "the per-core program was traced more than once"
    return _differences(joint, values, lowering, batch)


def _differences(joint: Joint, values: Sequence[tf.Tensor], lowering: mtf.Lowering, batch: Batch) -> list[str]:
    found, start = [], 0
    variables = {name: lowering.variables[name] for name in lowering.variables}
    for program, rules in joint.drawn:
        own = values[start : start + len(program.fetches)]
        start += len(program.fetches)
        try:
            check_values(program, [x.numpy() for x in own], variables)
        except AssertionError as error:
            more = f", devices {batch.devices}"
            found.append(f"{error}\n{describe(program, joint.mesh_shape, rules, more)}\n{batch}")
    return found
