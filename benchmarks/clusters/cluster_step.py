"""Measures the step of `benchmarks.transformer_step` over processes, and how much communication overlaps with work.

    python -m benchmarks.clusters.cluster_step

The first part runs on the loopback: eight cores, as one process, as two of four and as four of two. The second part
runs two processes in network namespaces, on links of a fast and of a limited rate.

A step without overlap sends only when nothing is computed. It takes the time on the fast link plus the time that its
bytes take on the slow link. A measured step is shorter by its overlap, given here as a share of the shorter of the two
times. One mesh has one core in each process. In the other, sums within a process come between the sums of gradients.
Rounds alternate. Times are medians of steps, CPU time and page faults are means, all of process 0.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import statistics

import tensorflow as tf

import meshtf as mtf
from benchmarks.clusters.joined_processes import Cost, Place, Processes, processes
from benchmarks.clusters.limited_links import NoNamespacesError, limited_hosts
from benchmarks.measuring.machine import machine
from benchmarks.transformer_step import examples, meshtf_step, with_weights

FAST = "10gbit"


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh, its layout, and its number of processes."""

    mesh_shape: str
    layout: str
    num_processes: int

    @property
    def cores(self) -> int:
        """The number of cores of each process."""
        return mtf.convert_to_shape(self.mesh_shape).size // self.num_processes

    def __str__(self) -> str:
        return f"{self.num_processes} x {self.cores} [{self.mesh_shape}]"


EIGHT_CORES = [Layout("all:8", "batch:all", n) for n in (1, 2, 4)]
ON_LINKS = [Layout("all:2", "batch:all", 2), Layout("data:2;model:2", "batch:data;d_ff:model;heads:model", 2)]


@dataclasses.dataclass
class Steps:
    """The measurements of a program: costs of its steps, bytes that a process sends in a step, the last loss."""

    costs: list[Cost] = dataclasses.field(default_factory=list)
    num_bytes: int = 0
    loss: float = 0.0

    @property
    def seconds(self) -> float:
        return statistics.median(cost.wall for cost in self.costs)

    def __str__(self) -> str:
        cpu, faults = (statistics.mean(getattr(cost, name) for cost in self.costs) for name in ("cpu", "faults"))
        return f"{self.seconds * 1e3:9.1f} {cpu * 1e3:9.1f} {faults:9.0f} {self.num_bytes / 1e6:9.2f} {self.loss:9.5f}"


@functools.cache
def started(layout: Layout) -> mtf.Function:
    step = with_weights(meshtf_step(mtf.SpmdMeshImpl(layout.mesh_shape, layout.layout)))
    take_step(step)
    return step


def take_step(step: mtf.Function) -> float:
    inputs, targets = map(tf.constant, examples())
    return float(step(inputs=inputs, targets=targets))


def some_steps(index: int, layout: Layout, number: int) -> Steps:
    """Takes `number` steps; runs in each process."""
    step, losses = started(layout), [0.0]
    costs = [Cost.of(lambda: losses.append(take_step(step)), 1) for _ in range(number)]
    return Steps(costs, step.report().bytes_between_processes, losses[-1])


def measured(running: dict[str, tuple[Processes, Layout]], steps: int, rounds: int) -> dict[str, Steps]:
    found = {name: Steps() for name in running}
    for _ in range(rounds):
        for name, (own, layout) in running.items():
            now = own.run(some_steps, layout, steps)[0]
            found[name] = Steps(found[name].costs + now.costs, now.num_bytes, now.loss)
    return found


HEAD = f"{'':28} {'step ms':>9} {'CPU ms':>9} {'faults':>9} {'MB sent':>9} {'loss':>9}"


def on_loopback(steps: int, rounds: int) -> None:
    with contextlib.ExitStack() as stack:
        running = {}
        for layout in EIGHT_CORES:
            places = [Place()] * layout.num_processes
            own = stack.enter_context(processes(places, layout.cores, is_cluster=layout.num_processes > 1))
            running[str(layout)] = own, layout
        found = measured(running, steps, rounds)
    base = next(iter(found.values())).seconds
    print(f"\n{HEAD}     ratio")
    for name, own_steps in found.items():
        print(f"{name:28} {own_steps} {own_steps.seconds / base:9.2f}")


def on_links(rate: str, layout: Layout, steps: int, rounds: int) -> None:
    running = {}
    with contextlib.ExitStack() as stack:
        for name in (FAST, rate):
            hosts = stack.enter_context(limited_hosts(layout.num_processes, name))
            running[name] = stack.enter_context(processes(hosts, layout.cores)), layout
        found = measured(running, steps, rounds)
    print(f"\n{layout}\n{HEAD}")
    for name, own_steps in found.items():
        print(f"{name:28} {own_steps}")
    sending = found[rate].num_bytes * 8 / bits_per_second(rate)
    computing, both = found[FAST].seconds, found[rate].seconds
    overlap = (computing + sending - both) / min(computing, sending)
    print(f"sending alone {sending * 1e3:.1f} ms; overlap {overlap:.0%}")


def bits_per_second(rate: str) -> float:
    return float(rate.removesuffix("mbit")) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="of each program in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", default="400mbit", help="of the slow links")
    parser.add_argument("--links_only", action="store_true")
    arguments = parser.parse_args()
    print(machine())
    if not arguments.links_only:
        on_loopback(arguments.steps, arguments.rounds)
    try:
        for layout in ON_LINKS:
            on_links(arguments.rate, layout, arguments.steps, arguments.rounds)
    except NoNamespacesError as error:
        print(f"\nno links of limited rate here: {error}")


if __name__ == "__main__":
    main()
