"""A mesh over several processes computes what one process computes with the same plan, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from meshtf.errors import DeviceError
from tests.cluster.joined_processes import JoinedProcesses
from tests.lowering.emitted import graph_of
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


def check(processes: JoinedProcesses, batches: Iterable[int], count: int = _PROGRAMS_PER_BATCH) -> None:
    """Runs the first programs of each batch."""
    for number in batches:
        mesh_shape = _MESHES[number % len(_MESHES)]
        over = (mtf.convert_to_shape(mesh_shape).dimension_names[-1],) if number % 2 else ()
        seeds = range(number * _PROGRAMS_PER_BATCH, number * _PROGRAMS_PER_BATCH + count)
        found = processes.run(run_batch_on_both, Batch(mesh_shape, (), tuple(seeds)), over, timeout_seconds=400)
        assert not any(found), "\n".join(line for lines in found for line in lines)


@pytest.mark.timeout(600)
def test_random_programs(two_processes: JoinedProcesses) -> None:
    check(two_processes, range(1, 2), count=6)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_programs(two_processes: JoinedProcesses) -> None:
    check(two_processes, range(20))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_random_programs_in_four_processes(fresh_processes: Callable[..., JoinedProcesses]) -> None:
    check(fresh_processes(4, cpus=8, heartbeat_timeout_seconds=60), range(20, 29))


def refusal_of_a_large_mesh(cluster: Cluster) -> str:
    with pytest.raises(DeviceError) as caught:
        mtf.SpmdMeshImpl("rows:45;cols:3", "")
    return str(caught.value)


def test_what_a_larger_mesh_needs_is_told_by_the_process(two_processes: JoinedProcesses) -> None:
    for text in two_processes.run(refusal_of_a_large_mesh):
        assert "mesh [rows:45 cols:3] has 135 cores, and the cluster of 2 processes has" in text
        assert "Add, before mtf.initialize_cluster() in each process:\n    mtf.virtual_cpus(68)\n" in text


SHIFTS = [(offset, wrap) for offset in (1, -1, 3) for wrap in (False, True)]


def shifted(cluster: Cluster) -> list[bool]:
    """Along a dimension over two cores of each process, so that what one sends goes to the other and on."""
    rows = mtf.Dimension("rows", 8)
    mesh_impl = mtf.SpmdMeshImpl("all:4", "rows:all", collective_timeout_seconds=30)
    inputs = {"x": mtf.TensorSpec([rows])}
    step = mtf.function(lambda x: [mtf.shift(x, offset, rows, wrap) for offset, wrap in SHIFTS], mesh_impl, inputs)
    x = np.arange(1, 9, dtype=np.float32)
    assert {c.kind for c in step.report().collectives} >= {"permute"}
    results = [y.numpy() for y in step(x=x)]
    return [np.array_equal(y, moved(x, *s)) for y, s in zip(results, SHIFTS, strict=True)]


def moved(x: np.ndarray, offset: int, wrap: bool) -> np.ndarray:
    y = np.roll(x, offset)
    if not wrap:
        places = np.arange(len(x)) - offset
        y[(places < 0) | (places >= len(x))] = 0
    return y


def test_shifts_across_processes(two_processes: JoinedProcesses) -> None:
    assert two_processes.run(shifted) == [[True] * len(SHIFTS)] * 2


def what_sums_wait_for(cluster: Cluster) -> tuple[bool, bool]:
    """Of a program that sums over processes, and then over the cores of each: whether the second sum waits for the
    first, and whether both are there."""
    batch, d_ff = mtf.Dimension("batch", 8), mtf.Dimension("d_ff", 8)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.reduce_sum(x, reduced_dim=batch), mtf.reduce_sum(x, reduced_dim=d_ff)]

    mesh_impl = mtf.SpmdMeshImpl("data:2;model:2", "batch:data;d_ff:model", bucket_bytes=0)
    step = mtf.function(program, mesh_impl, {"x": mtf.TensorSpec([batch, d_ff])})
    step(x=np.ones([8, 8], np.float32))
    operations = graph_of(step).get_operations()
    near = [op for op in operations if op.type == "AddV2" and ".all_reduce.model" in op.name]
    far = {op for op in operations if op.type.startswith("Collective") and ".all_reduce.data" in op.name}
    return any(far & ancestors(op) for op in near), bool(near and far)


def ancestors(of: tf.Operation) -> set[tf.Operation]:
    found, waiting = {of}, [of]
    while waiting:
        operation = waiting.pop()
        before = {*(x.op for x in operation.inputs), *operation.control_inputs} - found
        found |= before
        waiting.extend(before)
    return found


def test_sums_within_a_process_do_not_wait_for_those_between(two_processes: JoinedProcesses) -> None:
    assert two_processes.run(what_sums_wait_for) == [(False, True)] * 2
