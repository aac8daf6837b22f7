"""Estimates the time of a layout roughly, from the program's matrix products alone, to choose which layouts to plan
first.

A product is divided into as many parts as there are cores along the axes that split one of its names. If the product
contracts such a name, its terms are summed over these axes. Nothing else counts: the estimate only orders the layouts
that are priced afterwards.

For example, take the product [batch d_model] x [d_model d_ff] on rows:2. Under "batch:rows" it takes half the time.
Under "d_model:rows" it takes half the time too, and an allreduce of [batch d_ff] over `rows`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from meshtf.costs import Machine, TorusLinks
from meshtf.dimension import Shape
from meshtf.layout_search._choices import Names, SetsByAxis
from meshtf.planning.plan import Branch, Compute, Instruction, Plan, walk, with_nested_changed


@dataclasses.dataclass(frozen=True, slots=True)
class _Product:
    names: Names
    summed: Names
    flop_seconds: float
    bytes_of_result: int


class RoughEstimate:
    """The estimate for a program's products.

    Args:
      plan: the plan of the program with nothing split.
      machine: the machine on which it is to run.
      mesh_shape: the shape of the mesh.
    """

    def __init__(self, plan: Plan, machine: Machine, mesh_shape: Shape) -> None:
        self._sizes = [axis.size for axis in mesh_shape]
        links = machine.links
        self._bandwidth = links.bandwidth if isinstance(links, TorusLinks) else links[0].bandwidth
        products: dict[tuple[Names, Names], _Product] = {}
        for instruction, times in walk(_with_longer_sides(plan.instructions)):
            if isinstance(instruction, Compute) and instruction.operation.is_product:
                new = _product(instruction, times, machine)
                key = (new.names, new.summed)
                old = products.get(key, dataclasses.replace(new, flop_seconds=0.0, bytes_of_result=0))
                products[key] = dataclasses.replace(
                    new,
                    flop_seconds=old.flop_seconds + new.flop_seconds,
                    bytes_of_result=old.bytes_of_result + new.bytes_of_result,
                )
        self._products = list(products.values())
        self.work_seconds = sum(product.flop_seconds for product in self._products)
        """The seconds of all products, on one core at its peak."""

    def seconds(self, sets: SetsByAxis) -> float:
        """Returns the seconds of all products, and of the sums over cores that they leave."""
        return sum(self._seconds(product, sets) for product in self._products)

    def _seconds(self, product: _Product, sets: SetsByAxis) -> float:
        used = [(size, own) for size, own in zip(self._sizes, sets, strict=True) if own & product.names]
        summing = math.prod(size for size, own in used if own & product.summed)
        parts = math.prod(size for size, _ in used)
        sent = 2 * (1 - 1 / summing) * product.bytes_of_result * summing / parts
        return product.flop_seconds / parts + sent / self._bandwidth


def _with_longer_sides(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Returns the instructions with the side of each branch that has more FLOPs in place of the branch."""
    found: list[Instruction] = []
    for outer in instructions:
        instruction = with_nested_changed(outer, _with_longer_sides)
        if isinstance(instruction, Branch):
            found += max(instruction.if_true, instruction.if_false, key=_flops)
        else:
            found.append(instruction)
    return tuple(found)


def _flops(instructions: Sequence[Instruction]) -> int:
    return sum(i.flops * times for i, times in walk(instructions) if isinstance(i, Compute) and i.operation.is_product)


def _product(compute: Compute, times: int, machine: Machine) -> _Product:
    outputs = frozenset(d.name for t in compute.operation.outputs for d in t.shape)
    inputs = frozenset(d.name for t in compute.operation.inputs for d in t.shape)
    result = compute.outputs[0]
    seconds = compute.flops * times / machine.peak_of(compute.inputs[0].dtype.name)
    return _Product(inputs | outputs, inputs - outputs, seconds, result.slice_bytes * times)
