"""Measures collectives of several sizes within one process, between processes, and over links of limited rate.

    python -m benchmarks.clusters.cluster_collectives

The first part runs on the loopback: each collective between two cores, of one process and of two, compared with a plain
socket that sends the same bytes in both directions at once. The second part runs two processes of four cores each in
network namespaces, on links of 100 Mbit/s. It compares staged with flat collectives, and the bytes that a process
wrote, as the kernel counts them, with the plan's. Bytes sent are the bytes that a process sends to others. Time, CPU
time and page faults are of one process, as the mean of several calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import socket
import threading
from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from benchmarks.clusters.joined_processes import Cost, Place, Processes, processes
from benchmarks.clusters.limited_links import NoNamespacesError, limited_hosts
from benchmarks.clusters.payload_sent import payload_sent
from benchmarks.measuring.machine import machine
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.spmd.shared_memory_collectives import emit_for_all
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.mesh_impl.spmd.staged_collectives import StagedCollectives
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf_programs.launching.free_ports import free_ports

AXES = ("all",)
STEPS: dict[str, CollectiveStep] = {
    "all_reduce": AllReduce(AXES),
    "all_gather": AllGather(AXES, 0),
    "reduce_scatter": ReduceScatter(AXES, 0),
    "all_to_all": AllToAll(AXES, 0, 0),
}
SIZES = (25_000, 250_000, 2_500_000, 10_000_000)
FLOAT_BYTES = 4
TOLERANCE = 0.2


@dataclasses.dataclass(frozen=True)
class Case:
    """One collective over all cores, of float32[elements] on each; flat, or in stages if it crosses processes."""

    kind: str
    elements: int
    cores: int
    is_flat: bool = False

    def bytes_between(self, num_processes: int) -> int:
        """The bytes that a process sends to others, by the plan."""
        n, each = self.elements * FLOAT_BYTES, self.cores // num_processes
        if self.is_flat:
            return flat_bytes(self.kind, n, self.cores, each)
        process_of_core = tuple(core // each for core in range(self.cores))
        return STEPS[self.kind].bytes_between_processes(n, self.mesh_shape, process_of_core)

    @property
    def mesh_shape(self) -> mtf.Shape:
        return mtf.Shape([mtf.Dimension(AXES[0], self.cores)])

    @property
    def repetitions(self) -> int:
        return max(3, min(20, 10_000_000 // self.elements))


def flat_bytes(kind: str, n: int, cores: int, each: int) -> int:
    """The bytes that a process of `each` cores sends to others if every core communicates separately.

    An alltoall sends from each core to every other. All other collectives send in a ring.
    """
    if kind == "all_reduce":
        return 2 * n * (cores - 1) // cores
    if kind == "all_gather":
        return n * (cores - 1)
    return each * (cores - each) * n // cores


@functools.lru_cache(maxsize=1)
def step_of(case: Case) -> Callable[[], object]:
    """The collective on the devices of all processes, as a call."""
    mesh_impl = mtf.SpmdMeshImpl(case.mesh_shape, "")
    process_of_core = () if case.is_flat else mesh_impl.process_of_core
    collectives = SpmdCollectives(DeviceMesh(case.mesh_shape, mesh_impl.devices, 300.0, process_of_core), [AXES])
    signature = [tf.TensorSpec([case.elements]), *collectives.signature()]

    @tf.function(input_signature=signature, autograph=False, experimental_attributes={"_noinline": True})
    def core_program(x: tf.Tensor, *arguments: tf.Tensor) -> tf.Tensor:
        return STEPS[case.kind].emit(collectives.bind(arguments), x)

    own = local_cores(mesh_impl.devices)

    @tf.function(autograph=False)
    def each_by_itself(x: tf.Tensor) -> list[tf.Tensor]:
        results = []
        for core in own:
            with tf.device(mesh_impl.devices[core]):
                results.append(core_program(x, *collectives.arguments(core))[:1])
        return results

    @tf.function(autograph=False)
    def in_stages(x: tf.Tensor) -> list[tf.Tensor]:
        """The collective as in programs whose cores share the memory of their process."""
        bound = {core: collectives.bind(collectives.arguments(core)) for core in own}
        staged = StagedCollectives(case.mesh_shape, process_of_core, bound)
        made = emit_for_all(STEPS[case.kind], dict.fromkeys(own, x), staged)
        return [y[:1] for y in made.values()]

    on_all_cores = in_stages if process_of_core else each_by_itself
    x = tf.random.stateless_normal([case.elements], [1, 2])
    return lambda: [part.numpy() for part in on_all_cores(x)]


def collective_cost(index: int, case: Case) -> Cost:
    call = step_of(case)
    call()
    return Cost.of(call, case.repetitions)


def costs_on_links(running: Processes, case: Case) -> list[tuple[Cost, float]]:
    """The costs of each process, and the bytes that it sent to others in each call.

    The bytes are counted when all processes have their results, because a process that has its own results may still be
    sending to others.
    """
    running.run(_call_once, case)
    before = running.run(_sent_until_now)
    costs = running.run(_cost_of_calls, case)
    after = running.run(_sent_until_now)
    sent = [(end - start) / case.repetitions for start, end in zip(before, after, strict=True)]
    return list(zip(costs, sent, strict=True))


def _call_once(index: int, case: Case) -> None:
    step_of(case)()


def _cost_of_calls(index: int, case: Case) -> Cost:
    return Cost.of(step_of(case), case.repetitions)


def _sent_until_now(index: int) -> int:
    return payload_sent()


def socket_cost(index: int, port: int, num_bytes: int, times: int) -> Cost:
    """The cost when two processes send each other this many bytes at once, over one connection."""
    if index == 0:
        with socket.create_server(("127.0.0.1", port)) as server:
            peer, _ = server.accept()
    else:
        peer = _connected(port)
    sent, received = bytes(num_bytes), bytearray(num_bytes)

    def exchange() -> None:
        sender = threading.Thread(target=peer.sendall, args=(sent,))
        sender.start()
        rest = memoryview(received)
        while len(rest):
            rest = rest[peer.recv_into(rest) :]
        sender.join()

    with peer:
        exchange()
        return Cost.of(exchange, times)


def _connected(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            continue


HEAD = f"{'':16} {'MB sent':>8} {'ms':>9} {'GB/s':>7} {'CPU ms':>8} {'faults':>8}"


def line(name: str, num_bytes: float, cost: Cost) -> str:
    speed = num_bytes / cost.wall / 1e9
    return (
        f"{name:16} {num_bytes / 1e6:8.2f} {cost.wall * 1e3:9.2f} {speed:7.3f} {cost.cpu * 1e3:8.2f} {cost.faults:8.0f}"
    )


def on_loopback(sizes: Sequence[int]) -> None:
    with processes([Place()], 2, is_cluster=False) as one, processes([Place(), Place()], 1) as two:
        for elements in sizes:
            print(f"\n{elements * FLOAT_BYTES / 1e6:g} MB on each core\n{HEAD}   share of the socket's speed")
            for kind in STEPS:
                case = Case(kind, elements, 2)
                num_bytes = case.bytes_between(2)
                port = free_ports(1)[0]
                plain = two.run(socket_cost, port, num_bytes, case.repetitions)[0]
                within, between = one.run(collective_cost, case)[0], two.run(collective_cost, case)[0]
                print(kind)
                print(line("  one process", num_bytes, within))
                print(line("  two processes", num_bytes, between), f"{plain.wall / between.wall:9.2f}")
                print(line("  socket", num_bytes, plain))


def on_links(rate: str, elements: int, num_processes: int, each: int) -> bool:
    """Whether stages saved about as large a share of the time as of the planned bytes."""
    gained = True
    with limited_hosts(num_processes, rate) as hosts, processes(hosts, each) as running:
        size = f"{elements * FLOAT_BYTES / 1e6:g} MB on each core"
        print(f"\n{num_processes} processes of {each} cores, links of {rate}, {size}")
        print(f"{HEAD} {'payload':>8}   flat / stages: bytes, time")
        for kind in STEPS:
            gained &= _staged_against_flat(running, kind, elements, num_processes, each)
    return gained


def _staged_against_flat(running: Processes, kind: str, elements: int, num_processes: int, each: int) -> bool:
    flat, staged = (Case(kind, elements, num_processes * each, is_flat) for is_flat in (True, False))
    sent, costs = {}, {}
    for name, case in {"flat": flat, "in stages": staged}.items():
        found = costs_on_links(running, case)
        sent[name], costs[name] = case.bytes_between(num_processes), found[0][0]
        ratio = max(payload for _, payload in found) / sent[name]
        print(line(f"{kind[:14]}", sent[name], costs[name]), f"{ratio:8.3f}", f"  {name}")
    of_bytes = sent["flat"] / sent["in stages"]
    of_time = costs["flat"].wall / costs["in stages"].wall
    is_gained = of_time >= (1 - TOLERANCE) * of_bytes
    print(f"{'':71} {of_bytes:6.2f} {of_time:6.2f}   {'ok' if is_gained else 'TOO LITTLE'}")
    return is_gained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[25_000, 250_000, 2_500_000, 10_000_000], help="elements"
    )
    parser.add_argument("--rate", default="100mbit", help="of the links")
    parser.add_argument("--link_elements", type=int, default=1_000_000)
    parser.add_argument("--link_processes", type=int, default=2)
    parser.add_argument("--link_cores", type=int, default=4, help="of each process")
    arguments = parser.parse_args()
    print(machine())
    if arguments.sizes:
        on_loopback(arguments.sizes)
    try:
        gained = on_links(arguments.rate, arguments.link_elements, arguments.link_processes, arguments.link_cores)
    except NoNamespacesError as error:
        print(f"\nno links of limited rate here: {error}")
        return
    if not gained:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
