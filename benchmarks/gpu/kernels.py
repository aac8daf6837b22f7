"""Counts the kernels of a program that XLA has compiled for a GPU, and the bytes that they read and write.

Each instruction that makes the GPU work counts as one kernel: a fusion, a copy, or a call of a library, which may start
several kernels. The shapes tell the bytes:

- Operands are read once, and results are written once.
- Of an operand that is sliced or gathered from, only that share is read.
- An update in place writes only what is updated.
- A result of a library's call that nothing reads is its scratch memory, and is not counted.

A loop's body counts once for each iteration, if the compiler knows their number. Otherwise condition and body count
once. A conditional counts as the branch that reads and writes most.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from meshtf.tensorflow_private.xla_modules import parsed_hlo

_NO_KERNEL = {
    "after-all",
    "bitcast",
    "constant",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}
_CALLS = {"call", "async-start"}
_SLICES = {"dynamic-slice", "gather", "slice"}
_IN_PLACE = {"dynamic-update-slice", "scatter"}


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop: the number of its iterations, or None if the compiler does not know it, and the kernels of each."""

    iterations: int | None
    kernels: int


@dataclasses.dataclass
class Counts:
    """The kernels of a program and their bytes by kind, and its loops."""

    kernels: Counter[str] = dataclasses.field(default_factory=Counter)
    bytes: Counter[str] = dataclasses.field(default_factory=Counter)
    loops: list[Loop] = dataclasses.field(default_factory=list)

    def add(self, other: Counts, times: int = 1) -> None:
        """Adds the counts of a computation that runs this many times."""
        for own, added in ((self.kernels, other.kernels), (self.bytes, other.bytes)):
            own.update({kind: times * number for kind, number in added.items()})
        self.loops += other.loops


def counted_kernels(serialized: bytes) -> Counts:
    """Counts the kernels of a compiled program, a serialized HloModuleProto."""
    module = parsed_hlo(serialized)
    return _Module(module).counts(module.entry_computation_id)


class _Module:
    """A compiled module, whose computations are found by their numbers."""

    def __init__(self, module: Any) -> None:  # the protos have no types
        self._computations = {computation.id: computation for computation in module.computations}

    def counts(self, number: int) -> Counts:
        """The counts of a computation that is not fused, with those of the computations that it calls."""
        computation, found = self._computations[number], Counts()
        used = _used_results(computation)
        shapes = {each.id: each.shape for each in computation.instructions}
        for each in computation.instructions:
            if each.opcode == "while":
                self._add_loop(found, each)
            elif each.opcode == "conditional":
                branches = [self.counts(branch) for branch in each.called_computation_ids]
                found.add(max(branches, key=lambda branch: branch.bytes.total()))
            elif each.opcode in _CALLS:
                found.add(self.counts(each.called_computation_ids[0]))
            elif each.opcode not in _NO_KERNEL and not each.opcode.endswith(("-done", "-update")):
                kind = _kind(each)
                found.kernels[kind] += 1
                found.bytes[kind] += round(self._read(each, shapes) + self._written(each, shapes, used))
        return found

    def _add_loop(self, found: Counts, loop: Any) -> None:
        body, condition = map(self.counts, loop.called_computation_ids)
        iterations = _iterations(loop)
        if iterations is None:
            body.add(condition)
        found.add(body, 1 if iterations is None else iterations)
        found.loops.append(Loop(iterations, body.kernels.total()))

    def _read(self, kernel: Any, shapes: Mapping[int, Any]) -> float:
        """The bytes that a kernel reads."""
        if kernel.opcode == "fusion":
            shares = _shares_of_parameters(self._fused(kernel))
        else:
            shares = [_share_by(kernel, position, shapes) for position in range(len(kernel.operand_ids))]
        each = dict[int, float]()
        for operand, share in zip(kernel.operand_ids, shares, strict=True):
            each[operand] = max(share, each.get(operand, 0.0))
        return sum(share * _bytes(shapes[operand]) for operand, share in each.items())

    def _written(self, kernel: Any, shapes: Mapping[int, Any], used: Mapping[int, set[int] | None]) -> int:
        """The bytes that a kernel writes."""
        if kernel.opcode == "fusion":
            fused = self._fused(kernel)
            own = {each.id: each for each in fused.instructions}
            inner = {each.id: each.shape for each in fused.instructions}
            return sum(_bytes_by(each, inner) for each in _results(own[fused.root_id], own))
        parts, results = kernel.shape.tuple_shapes, used.get(kernel.id)
        if kernel.opcode == "custom-call" and parts and results is not None:
            return sum(_bytes(part) for index, part in enumerate(parts) if index in results)
        return _bytes_by(kernel, shapes)

    def _fused(self, fusion: Any) -> Any:
        return self._computations[fusion.called_computation_ids[0]]


def _used_results(computation: Any) -> dict[int, set[int] | None]:
    """The numbers of the results that others read, keyed by instruction. None stands for all."""
    found: dict[int, set[int] | None] = {computation.root_id: None}
    for each in computation.instructions:
        for operand in each.operand_ids:
            if each.opcode != "get-tuple-element":
                found[operand] = None
            elif (own := found.setdefault(operand, set())) is not None:
                own.add(each.tuple_index)
    return found


def _shares_of_parameters(fused: Any) -> list[float]:
    """The share of each parameter that a fusion reads, from 0 to 1. It follows what its results need."""
    own = {each.id: each for each in fused.instructions}
    shapes = {each.id: each.shape for each in fused.instructions}
    in_place = {each.id for each in _results(own[fused.root_id], own)}
    shares = defaultdict[int, float](float, {fused.root_id: 1.0})
    for each in reversed(fused.instructions):  # an instruction comes after its operands
        for position, operand in enumerate(each.operand_ids):
            needed = _share_by(each, position, shapes, in_place=each.id in in_place)
            shares[operand] = min(1.0, shares[operand] + shares[each.id] * needed)
    parameters = [each for each in fused.instructions if each.opcode == "parameter"]
    return [shares[each.id] for each in sorted(parameters, key=lambda each: each.parameter_number)]


def _share_by(instruction: Any, position: int, shapes: Mapping[int, Any], *, in_place: bool = True) -> float:
    """The share of an operand that an instruction needs for its whole result."""
    if position > 0:
        return 1.0
    if instruction.opcode in _SLICES:
        whole = _elements(shapes[instruction.operand_ids[0]])
        return min(1.0, _elements(instruction.shape) / max(whole, 1))
    return 0.0 if in_place and instruction.opcode in _IN_PLACE else 1.0


def _results(root: Any, instructions: Mapping[int, Any]) -> list[Any]:
    """The instructions that make the results of a fusion."""
    if root.opcode == "tuple":
        return [each for operand in root.operand_ids for each in _results(instructions[operand], instructions)]
    return _results(instructions[root.operand_ids[0]], instructions) if root.opcode == "bitcast" else [root]


def _bytes_by(instruction: Any, shapes: Mapping[int, Any]) -> int:
    """The bytes of a result: all, or the update's where it is made in place."""
    if instruction.opcode == "dynamic-update-slice":
        return _bytes(shapes[instruction.operand_ids[1]])
    if instruction.opcode == "scatter":
        operands = instruction.operand_ids
        return sum(_bytes(shapes[update]) for update in operands[len(operands) // 2 + 1 :])
    return _bytes(instruction.shape)


def _iterations(loop: Any) -> int | None:
    """The number of iterations that the compiler knows."""
    config = json.loads(loop.backend_config or "{}")
    count = config.get("known_trip_count", {}).get("n")
    return None if count is None else int(count)


def _kind(kernel: Any) -> str:
    """The kind of a kernel: the opcode, and which library's or which of XLA's it is."""
    if kernel.opcode == "custom-call":
        return f"custom-call {kernel.custom_call_target}"
    if kernel.opcode == "fusion":
        config = json.loads(kernel.backend_config or "{}")
        return f"fusion {config.get('fusion_backend_config', {}).get('kind') or kernel.fusion_kind}"
    return kernel.opcode


def _bytes(shape: Any) -> int:
    """The bytes of an array, or of the arrays of a tuple."""
    if shape.tuple_shapes:
        return sum(map(_bytes, shape.tuple_shapes))
    types = shape.DESCRIPTOR.fields_by_name["element_type"].enum_type.values_by_number
    name = types[shape.element_type].name
    bits = 8 if name == "PRED" else int(next(iter(re.findall(r"\d+", name)), 0))
    return math.ceil(bits * _elements(shape) / 8)


def _elements(shape: Any) -> int:
    return math.prod(shape.dimensions)
