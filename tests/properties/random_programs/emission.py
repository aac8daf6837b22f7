"""Many random programs in one graph, lowered and run at once on virtual CPUs: what costs most is the first call."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import tensorflow as tf

import meshtf as mtf
from meshtf.layout import Axes
from meshtf.lowering.processors import work_done_once
from meshtf.ops.variables.program_step import program_step
from tests.lowering.emitted import times_traced
from tests.properties.random_programs.builder import RejectedError
from tests.properties.random_programs.checking import check_values, describe
from tests.properties.random_programs.generate import draw_layout, draw_shared
from tests.properties.random_programs.seeds import AGAIN, draw

_TIMEOUT_SECONDS = 500.0


@dataclasses.dataclass(frozen=True)
class Batch:
    """What to run: a mesh, the order of its devices, a program for each seed, and whether cores hand one another their
    slices in memory, or by TensorFlow's collectives."""

    mesh_shape: str
    devices: tuple[int, ...]
    seeds: tuple[int, ...]
    shares_memory: bool = True

    def alone(self) -> list[Batch]:
        """Each program in a batch of its own."""
        return [dataclasses.replace(self, seeds=(seed,)) for seed in self.seeds]

    def __str__(self) -> str:
        where = f'--mesh_shape="{self.mesh_shape}" --devices={",".join(map(str, self.devices))}'
        where += "" if self.shares_memory else " --by_runtime"
        return AGAIN.format(f"{where} {' '.join(map(str, self.seeds))}")


class Joint:
    """The programs of a batch in one graph, and layouts that are legal for all of them.

    Names that are a library's, such as `microbatch`, are in several programs, which then split them alike.
    """

    def __init__(self, batch: Batch) -> None:
        self.mesh_shape = mtf.convert_to_shape(batch.mesh_shape)
        self.mesh = mtf.Mesh(mtf.Graph("batch"))
        with self.mesh.graph:
            program_step(self.mesh)
            self.programs = [
                draw(seed, random.Random(seed), self.mesh, self.mesh_shape, f"p{number}_", longest=3)
                for number, seed in enumerate(batch.seeds)
            ]
        shared = draw_shared(random.Random(batch.seeds[0]), self.programs, self.mesh_shape)
        try:
            drawn = [self._drawn(seed, i, shared) for i, seed in enumerate(batch.seeds)]
        except RejectedError:  # what one of them says of a layout leaves no place for a shared one
            whole = dict.fromkeys(shared, ())
            drawn = [self._drawn(seed, i, whole) for i, seed in enumerate(batch.seeds)]
        self.layouts = [rules for rules, _ in drawn]
        self.layout, self.parameter_layout = (
            mtf.LayoutRules([rule for both in drawn for rule in both[which].rules]) for which in (0, 1)
        )

    def _drawn(self, seed: int, number: int, shared: Mapping[str, Axes]) -> tuple[mtf.LayoutRules, mtf.LayoutRules]:
        """The layout of a program, and that of its variables, which is mostly the same."""
        rng, program = random.Random(f"layout {seed}"), self.programs[number]
        rules = draw_layout(rng, program, self.mesh_shape, shared)
        return rules, rules if rng.randrange(3) else draw_layout(rng, program, self.mesh_shape, shared)


def run_batch(batch: Batch) -> list[str]:
    """Runs a batch. A message for each program that gave something else than it should.

    A CollectiveError goes through: no more can be run in this process.
    """
    joint = Joint(batch)
    # Their slices are small: what cores would do alike is done once, however little it is.
    with mock.patch.multiple(work_done_once, CALL_BYTES=0, CALL_FLOPS=0):
        lowering, values = run_joint(joint, [f"CPU:{d}" for d in batch.devices], share_memory=batch.shares_memory)
    return _differences(joint, values, lowering, batch)


def run_joint(joint: Joint, devices: Sequence[str] | None, **options: Any) -> tuple[mtf.Lowering, list[tf.Tensor]]:
    """The programs of a batch, lowered as one for a mesh on these devices, and what they returned, run once."""
    mesh_impl = mtf.SpmdMeshImpl(
        joint.mesh_shape,
        joint.layout,
        devices,
        parameter_layout=joint.parameter_layout,
        max_padding=max(program.max_padding for program in joint.programs),
        collective_timeout_seconds=_TIMEOUT_SECONDS,
        **options,
    )
    lowering = mtf.Lowering(joint.mesh.graph, {joint.mesh: mesh_impl})
    fetches = [x for program in joint.programs for x in program.fetches]
    values = lowering.run(fetches, {name: x for program in joint.programs for name, x in program.feeds.items()})
    assert isinstance(values, list)
    traces = times_traced(lowering.execution(fetches).program)
    assert traces == {1}, "the per-core program was traced more than once"
    return lowering, values


def _differences(joint: Joint, values: Sequence[tf.Tensor], lowering: mtf.Lowering, batch: Batch) -> list[str]:
    found, start = [], 0
    variables = {name: lowering.variables[name] for name in lowering.variables}
    for program, rules in zip(joint.programs, joint.layouts, strict=True):
        own = values[start : start + len(program.fetches)]
        start += len(program.fetches)
        try:
            check_values(program, [x.numpy() for x in own], variables)
        except AssertionError as error:
            more = f", devices {batch.devices}"
            found.append(f"{error}\n{describe(program, joint.mesh_shape, rules, more)}\n{batch}")
    return found
