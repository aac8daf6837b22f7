"""A mesh over two processes computes what one process computes with the same plan, bit for bit."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from tests.cluster.joined_processes import JoinedProcesses
from tests.properties.random_programs.checking import check_values
from tests.properties.random_programs.emission import Batch, Joint, run_joint

_MESHES = ["rows:2;cols:2", "x:2;y:2;z:2", "rows:4;cols:2"]
_PROGRAMS_PER_BATCH = 12


def run_batch_on_both(cluster: Cluster, batch: Batch, axes_over_processes: tuple[str, ...]) -> list[str]:
    """Which programs of a batch give other bits on both processes than on the CPUs of this one, or other values than
    they should."""
    over = {"axes_over_processes": axes_over_processes}
    joint, joint_alone = Joint(batch), Joint(batch)
    lowering, values = run_joint(joint, None, **over)
    alone = [f"CPU:{i}" for i in range(joint.mesh_shape.size)]
    lowering_alone, values_alone = run_joint(joint_alone, alone, num_processes=cluster.num_processes, **over)
    pairs = zip(values, values_alone, strict=True)
    found = [f"a result of shape {a.shape}" for a, b in pairs if a.numpy().tobytes() != b.numpy().tobytes()]
    variables = lowering.variables
    for name in variables:
        own, expected = variables.slices(name).slices, lowering_alone.variables.slices(name).slices
        assert len(own) == joint.mesh_shape.size // cluster.num_processes
        found += [name for core, x in own.items() if x.numpy().tobytes() != expected[core].numpy().tobytes()]
    whole = {name: lowering_alone.variables[name] for name in lowering_alone.variables}
    start = 0
    for program, rules in zip(joint.programs, joint.layouts, strict=True):
        own_values = [x.numpy() for x in values[start : start + len(program.fetches)]]
        start += len(program.fetches)
        try:
            check_values(program, own_values, whole)
        except AssertionError as error:
            found.append(f"{rules}: {error}")
    return [f"{batch}: {what}" for what in found]


def check(processes: JoinedProcesses, batches: range) -> None:
    for number in batches:
        mesh_shape = _MESHES[number % len(_MESHES)]
        over = (mtf.convert_to_shape(mesh_shape).dimension_names[-1],) if number % 2 else ()
        seeds = range(number * _PROGRAMS_PER_BATCH, (number + 1) * _PROGRAMS_PER_BATCH)
        found = processes.run(run_batch_on_both, Batch(mesh_shape, (), tuple(seeds)), over, timeout_seconds=400)
        assert not any(found), "\n".join(line for lines in found for line in lines)


@pytest.mark.timeout(600)
def test_random_programs(two_processes: JoinedProcesses) -> None:
    check(two_processes, range(2))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_programs(two_processes: JoinedProcesses) -> None:
    check(two_processes, range(2, 20))
