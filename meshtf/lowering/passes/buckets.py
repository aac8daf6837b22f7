"""Buckets: small collectives of one kind travel together.

Each collective has a fixed cost to start, however little it carries. Sent one by one, the gradients of biases and
scales cost more than the gradients of the matrices. This pass joins sums, and gathers of new weights, where they have
the same kind, mesh axes and dtype and do not need one another. Their slices are flattened, concatenated, sent at once,
and taken apart again. A collective waits for others only as long as nothing but light work needs its result: matrix
products and loops never wait. The pass covers the whole plan, with the bodies of loops and branches.

For example, the gradients of a scale [d_model:8] and of a bias [d_ff:16] each need an allreduce over `data`. They
become: pack both into [bucket:24], one allreduce, unpack. For a reduce-scatter over four cores the bucket is in blocks,
[4, 2 + 4] flat, so that each core's block holds its parts of both. An allgather receives such blocks.

The algorithm visits the instructions once, in order. A collective that fits a bucket enters it and is postponed. Light
work that needs its result is postponed too. Any other instruction that needs it closes the bucket: the joint collective
is done there. Then the pass visits the postponed instructions again, since they may enter the next bucket.

The interpreter gives the same bits with buckets and without. On devices, TensorFlow adds up the parts of a tensor in an
order that depends on their places, so an element's place in a bucket may change its rounding. A program's bits stay the
same run after run.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.mesh_impl.blocks import merge_from_front, reshaped, split_to_front
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import (
    AssignVariable,
    Collective,
    Compute,
    Core,
    Instruction,
    Plan,
    Value,
    walk,
    with_nested_changed,
)
from meshtf.planning.process_spans import crossing_axes


def bucket_collectives(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan with small collectives in buckets."""
    if not options.bucket_bytes:
        return plan
    first = 1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0)
    passes = _Pass(plan.mesh_shape, options, itertools.count(first))
    return dataclasses.replace(plan, instructions=passes.bucketed(plan.instructions))


@dataclasses.dataclass(frozen=True)
class _Pass:
    mesh_shape: Shape
    options: PassOptions
    numbers: Iterator[int]

    def bucketed(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        stream = _Stream(self)
        for instruction in instructions:
            stream.take(with_nested_changed(instruction, self.bucketed))
        return stream.finished()

    def key(self, collective: Collective) -> tuple[object, ...] | None:
        """Returns the properties that all members of one bucket share, or None for a collective that travels alone."""
        step, before, after = collective.step, collective.input, collective.output
        size = max(before.slice_bytes, after.slice_bytes)
        if not _is_gradient_or_weight(collective) or not 0 < size <= self._largest_member(step):
            return None
        used = before.layout.used - set(step.axes)
        return (step.for_bucket(), before.dtype, before.pending, after.pending, used)

    def _largest_member(self, step: CollectiveStep) -> int:
        """Returns the bytes of the largest slice that is worth copying into a bucket.

        Between processes a start costs more than any copy, so only the size of the bucket limits it there.
        """
        options = self.options
        if crossing_axes(step.axes, self.mesh_shape, options.process_of_core):
            return options.bucket_bytes
        return min(options.largest_bucket_member, options.bucket_bytes)


def _is_gradient_or_weight(collective: Collective) -> bool:
    """Tells whether the collective is a sum, or gathers a value that is assigned.

    Weights that are gathered for a product are left out, because each is needed at a different time.
    """
    step = collective.step
    return step.for_bucket() is not None and (step.reduction is not None or collective.operation.has_side_effect)


@dataclasses.dataclass(eq=False)
class _Bucket:
    members: list[Collective]
    bytes: int = 0


class _Stream:
    """Puts instructions into a new order, in which each user of a bucket comes after it."""

    def __init__(self, passes: _Pass) -> None:
        self._pass = passes
        self._done: list[Instruction] = []
        self._open: dict[tuple[object, ...], _Bucket] = {}
        self._blockers: dict[Value, _Bucket | Instruction] = {}
        """The open bucket or the postponed instruction that will make each value that is not made yet."""
        self._waiting: dict[Value, list[Instruction]] = {}
        """The postponed instructions, keyed by one value that each waits for."""
        self._places: dict[Instruction, int] = {}
        """The order in which the postponed instructions came."""
        self._again: list[tuple[int, Instruction]] = []
        """A heap of the postponed instructions whose value is there now, the earliest first."""

    def take(self, instruction: Instruction) -> None:
        # Closing a bucket makes some values and visits postponed instructions again, which may open other buckets. So
        # the open buckets that are needed are found again after each.
        while (missing := next((v for v in instruction.inputs if v in self._blockers), None)) is not None:
            if _may_wait(instruction, self._pass.options):
                self._places.setdefault(instruction, len(self._places))
                self._waiting.setdefault(missing, []).append(instruction)
                self._blockers.update(dict.fromkeys(instruction.outputs, instruction))
                return
            self._close(self._needed(instruction))
        key = self._pass.key(instruction) if isinstance(instruction, Collective) else None
        if key is None:
            self._done.append(instruction)
            self._release(instruction.outputs)
        else:
            assert isinstance(instruction, Collective)
            self._add(key, instruction)

    def finished(self) -> tuple[Instruction, ...]:
        while self._open:
            self._close(frozenset(self._open.values()))
        return tuple(self._done)

    def _needed(self, instruction: Instruction) -> frozenset[_Bucket]:
        """Returns the open buckets that must be done before the instruction can be."""
        seen: set[_Bucket | Instruction] = set()
        behind = list(instruction.inputs)
        while behind:
            blocker = self._blockers.get(behind.pop())
            if blocker is not None and blocker not in seen:
                seen.add(blocker)
                behind.extend(() if isinstance(blocker, _Bucket) else blocker.inputs)
        return frozenset(blocker for blocker in seen if isinstance(blocker, _Bucket))

    def _add(self, key: tuple[object, ...], member: Collective) -> None:
        size = max(member.input.slice_bytes, member.output.slice_bytes)
        bucket = self._open.get(key)
        # A full bucket leaves at once, so that its bytes are on their way while the next one fills.
        if bucket is not None and bucket.bytes + size > self._pass.options.bucket_bytes:
            self._close(frozenset({bucket}), before=self._places.get(member))
        bucket = self._open.setdefault(key, _Bucket([]))
        bucket.members.append(member)
        bucket.bytes += size
        self._blockers[member.output] = bucket

    def _release(self, values: Iterable[Value]) -> None:
        """Marks the values as made, and queues the instructions that waited for them for another visit."""
        for value in values:
            if self._blockers.pop(value, None) is not None:
                for instruction in self._waiting.pop(value, ()):
                    heapq.heappush(self._again, (self._places[instruction], instruction))

    def _close(self, buckets: frozenset[_Bucket], before: int | None = None) -> None:
        """Does the buckets, and visits the instructions that waited for them again, in order. These may enter the next
        buckets.

        If this happens during the visit of a postponed instruction, only instructions with a place below `before` are
        visited. The rest follow after that instruction.
        """
        for key in [key for key, bucket in self._open.items() if bucket in buckets]:
            self._done.extend(_joined(self._open.pop(key).members, self._pass))
        for bucket in buckets:
            self._release(member.output for member in bucket.members)
        while self._again and (before is None or self._again[0][0] < before):
            self.take(heapq.heappop(self._again)[1])


def _may_wait(instruction: Instruction, options: PassOptions) -> bool:
    if isinstance(instruction, Compute):
        # An update that waits keeps its inputs in memory, so only a small one may wait.
        is_small = sum(v.slice_bytes for v in instruction.inputs) <= options.most_bytes_ahead
        return is_light(instruction, options) and (is_small or not instruction.facts.is_update)
    return isinstance(instruction, Collective | AssignVariable)


def is_light(compute: Compute, options: PassOptions) -> bool:
    """Tells whether postponing it delays nothing: it is no large product, or its results are for the next step."""
    return compute.flops <= options.light_flops or compute.facts.is_update


def _joined(members: Sequence[Collective], passes: _Pass) -> list[Instruction]:
    """Returns the instructions that move all members at once: pack, the collective, unpack."""
    if len(members) == 1:
        return list(members)
    first, mesh_shape = members[0], passes.mesh_shape
    step, parts = first.step, axes_size(first.step.axes, mesh_shape)
    used = tuple(d.name for d in mesh_shape if d.name in first.input.layout.used and d.name not in step.axes)
    before = _Side([m.input for m in members], (*used, *(step.axes if step.concat_dim is not None else ())))
    after = _Side([m.output for m in members], (*used, *(step.axes if step.split_dim is not None else ())))
    moved, received = before.value(passes), after.value(passes)
    packing, unpacking = _packing(step, members, parts), _unpacking(step, members, parts)
    facts = WorkFacts(only_moves=True)
    pack = Compute(first.operation, "pack", tuple(before.values), (moved,), packing, facts=facts)
    unpack = Compute(first.operation, "unpack", (received,), tuple(after.values), unpacking, facts=facts)
    together = step.for_bucket()
    assert together is not None
    return [pack, Collective(first.operation, together, moved, received, tuple(members)), unpack]


@dataclasses.dataclass(frozen=True)
class _Side:
    """The slices that travel together, before or after the collective, and the mesh axes that split them."""

    values: Sequence[Value]
    axes: Axes

    def value(self, passes: _Pass) -> Value:
        own, first = sum(math.prod(v.slice_shape) for v in self.values), self.values[0]
        shape = Shape([Dimension("bucket", own * axes_size(self.axes, passes.mesh_shape))])
        return Value(next(passes.numbers), shape, first.dtype, TensorLayout((self.axes,)), first.pending, (own,))


def _packing(step: CollectiveStep, members: Sequence[Collective], parts: int) -> Callable[..., tf.Tensor]:
    """Returns the function that concatenates a core's slices."""
    dims = [m.step.split_dim for m in members]

    def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
        if step.split_dim is None:
            return tf.concat([reshaped(x, [math.prod(x.shape)]) for x in slices], 0)
        # A core's block of a reduce-scatter must hold its parts of every member, so each member is cut into blocks
        # before they are joined.
        cut = [split_to_front(x, d, parts) for x, d in zip(slices, dims, strict=True) if d is not None]
        blocks = [tf.reshape(x, [parts, -1]) for x in cut]
        return tf.reshape(tf.concat(blocks, 1), [-1])

    return emit


def _unpacking(step: CollectiveStep, members: Sequence[Collective], parts: int) -> Callable[..., list[tf.Tensor]]:
    """Returns the function that takes a core's received slices apart again."""
    dims = [m.step.concat_dim for m in members]
    after = [m.output.slice_shape for m in members]
    sent = [m.input.slice_shape for m in members]

    def emit(core: Core, x: tf.Tensor) -> list[tf.Tensor]:
        if step.concat_dim is None:
            flat = tf.split(x, [math.prod(size) for size in after])
            return [reshaped(y, size) for y, size in zip(flat, after, strict=True)]
        flat = tf.split(tf.reshape(x, [parts, -1]), [math.prod(size) for size in sent], axis=1)
        blocks = [tf.reshape(y, [parts, *size]) for y, size in zip(flat, sent, strict=True)]
        return [merge_from_front(x, d) for x, d in zip(blocks, dims, strict=True) if d is not None]

    return emit
