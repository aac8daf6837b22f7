"""Emits collectives inside the trace of a per-core program.

All cores run one program, so everything that differs between cores is in tensors. Every function here takes and returns
blocks in the order of mesh positions, independent of the order of the devices.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import UsageError
from meshtf.graph.dtypes import sum_dtype
from meshtf.layout import axes_size
from meshtf.mesh_impl.blocks import merge_from_front, split_to_front, static_shape
from meshtf.mesh_impl.spmd import _bitcast as bitcast
from meshtf.mesh_impl.spmd._bound_groups import (
    BACKWARD,
    FORWARD,
    BoundGroup,
    BoundPairs,
    BoundPermutation,
    BoundStages,
)
from meshtf.mesh_impl.spmd._group_facts import LARGEST_ALLTOALL
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning.local_work.reductions import NATIVE, STACKED, Reduction, reduce_with, stacked_sum

_ALL_TO_ALL_TAKES = NATIVE
_GATHER_TAKES = tuple(dtype for dtype in NATIVE if dtype != tf.bfloat16)


class BoundCollectives:
    """The collectives of one program, inside its trace. Every `x` has a static shape."""

    def __init__(
        self,
        groups: Mapping[tuple[str, ...], BoundGroup | BoundStages],
        permutations: Mapping[tuple[int, ...], BoundPermutation],
        tokens: Sequence[tf.Tensor],
        counters: Sequence[tf.Tensor],
        mesh_shape: Shape,
        waited: tf.Tensor | None = None,
    ) -> None:
        """`waited` is the handle of the device's counter of time in collectives, if the mesh spans processes."""
        self._waited = waited
        self._groups = groups
        self._permutations = permutations
        self._tokens = tokens
        self._counters = counters
        self._mesh_shape = mesh_shape
        self._instance_keys: Callable[[], int] | None = None
        self._one = tf.constant(1, tf.int64) if tokens else None
        for counter in counters:
            self._leave(counter)

    def all_reduce(self, x: tf.Tensor, axes: Sequence[str], reduction: Reduction) -> tf.Tensor:
        """The sum, product, maximum or minimum over the cores along `axes`; for bool, "or" and "and"."""
        group = self._group(axes)
        if group is None or not x.shape.num_elements():
            return x
        if x.dtype.is_complex and reduction == "multiply":
            return tf.reduce_prod(self._gather_blocks(x, group), axis=0)
        if isinstance(group, BoundStages):
            return reduce_with(x, reduction, lambda y, merge_op: self._reduce_in_stages(y, group, merge_op))
        return reduce_with(x, reduction, lambda y, merge_op: self._reduce(y, group, merge_op))

    def all_gather(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """The `x` of all cores along `axes`, concatenated along dimension `dim`."""
        group = self._group(axes)
        if group is None:
            return x
        if not x.shape.num_elements():
            return merge_from_front(tf.zeros([group.size, *x.shape], x.dtype), dim)
        return merge_from_front(self._gather_blocks(x, group), dim)

    def all_to_all(self, x: tf.Tensor, axes: Sequence[str], split_dim: int, concat_dim: int) -> tf.Tensor:
        """Sends block j of `split_dim` to position j along `axes`. Concatenates received blocks along `concat_dim`."""
        group = self._group(axes)
        if group is None:
            return x
        return merge_from_front(self._exchange(split_to_front(x, split_dim, group.size), group), concat_dim)

    def reduce_scatter(self, x: tf.Tensor, axes: Sequence[str], dim: int) -> tf.Tensor:
        """Sums over the cores along `axes` ("or" for bool). Position j keeps block j of the sum along `dim`."""
        group = self._group(axes)
        if group is None:
            return x
        blocks = split_to_front(x, dim, group.size)
        if isinstance(group, BoundStages):
            return self._reduce_scatter_in_stages(blocks, group)
        return stacked_sum(self._exchange(blocks, group))

    def permute(self, x: tf.Tensor, destinations: Sequence[int]) -> tf.Tensor:
        """Sends the `x` of core c to core `destinations[c]`, bit for bit."""
        if all(core == destination for core, destination in enumerate(destinations)) or not x.shape.num_elements():
            return x
        permutation = self._permutations.get(tuple(destinations))
        if permutation is None:
            raise UsageError(f"permutation {tuple(destinations)} was not declared before the program was traced")
        flat = tf.reshape(x, [1, x.shape.num_elements()])
        moved = _carried(lambda blocks: self._send_and_receive(blocks, permutation), flat, _GATHER_TAKES)
        return tf.reshape(moved, x.shape)

    def across_processes(self, axes: Sequence[str]) -> BoundCollectives:
        """The collectives over these axes between processes, among the cores with the same number in their process."""
        stages = self._groups[tuple(axes)]
        assert isinstance(stages, BoundStages)
        apart = copy.copy(self)
        across = BoundStages(stages.across.size, None, stages.across, None, None)
        apart._groups = {tuple(axes): across}
        return apart

    def with_instance_keys(self, new_instance_key: Callable[[], int]) -> BoundCollectives:
        """The same collectives with another source of keys, for several cores that each emit a collective."""
        apart = copy.copy(self)
        apart._instance_keys = new_instance_key
        return apart

    def _group(self, axes: Sequence[str]) -> BoundGroup | BoundStages | None:
        """The running core's group over these axes; None if every group has one core."""
        if axes_size(axes, self._mesh_shape) == 1:
            return None
        if tuple(axes) not in self._groups:
            raise UsageError(f"collectives over {'+'.join(axes)} were not declared before the program was traced")
        return self._groups[tuple(axes)]

    def _reduce(self, x: tf.Tensor, group: BoundGroup, merge_op: str) -> tf.Tensor:
        # TensorFlow would round after each addition. Within a process nothing is sent, so a wide dtype costs no bytes.
        wide = sum_dtype(x.dtype) if merge_op in ("Add", "Mul") and not group.crosses else x.dtype
        reduced = self._emit_in(
            group,
            tf.raw_ops.CollectiveReduceV2,
            input=tf.cast(x, wide),
            group_size=group.size,
            group_key=group.key,
            merge_op=merge_op,
            final_op="Id",
        )
        return tf.cast(reduced, x.dtype)

    def _gather_blocks(self, x: tf.Tensor, group: BoundGroup | BoundStages) -> tf.Tensor:
        """Gathers `[..]` of each member to `[members, ..]`, by position."""
        if isinstance(group, BoundStages):
            return self._gather_in_stages(x, group)

        def gather(block: tf.Tensor) -> tf.Tensor:
            gathered = self._emit_in(
                group,
                tf.raw_ops.CollectiveGatherV2,
                input=block,
                group_size=group.size,
                group_key=group.key,
            )
            # TensorFlow does not infer this shape, since the size of a group may be a tensor.
            gathered.set_shape([group.size, block.shape[1]])
            return gathered if group.ranks is None else tf.gather(gathered, group.ranks)

        blocks = _carried(gather, tf.reshape(x, [1, x.shape.num_elements()]), _GATHER_TAKES)
        return tf.reshape(blocks, [group.size, *x.shape])

    def _exchange(self, blocks: tf.Tensor, group: BoundGroup | BoundStages) -> tf.Tensor:
        """Sends block j of `[members, ..]` to position j, and returns the received blocks by the sender's position."""
        if not blocks.shape.num_elements():
            return blocks
        if isinstance(group, BoundStages):
            return self._exchange_in_stages(blocks, group)
        flat = tf.reshape(blocks, [group.size, blocks.shape[1:].num_elements()])
        pairs = group.pairs
        if pairs is None and group.size > LARGEST_ALLTOALL:
            raise UsageError(f"an alltoall among {group.size} cores was not declared before the program was traced")
        if pairs is None:
            moved = _carried(lambda x: self._exchange_at_once(x, group), flat, _ALL_TO_ALL_TAKES)
        else:
            moved = _carried(lambda x: self._exchange_in_pairs(x, group, pairs), flat, _GATHER_TAKES)
        return tf.reshape(moved, blocks.shape)

    def _exchange_at_once(self, blocks: tf.Tensor, group: BoundGroup) -> tf.Tensor:
        by_rank = blocks if group.positions is None else tf.gather(blocks, group.positions)
        moved = self._emit_in(
            group,
            tf.raw_ops.CollectiveAllToAllV2,
            input=by_rank,
            group_size=group.size,
            group_key=group.key,
        )
        moved.set_shape(blocks.shape)
        return moved if group.ranks is None else tf.gather(moved, group.ranks)

    def _exchange_in_pairs(self, blocks: tf.Tensor, group: BoundGroup, pairs: BoundPairs) -> tf.Tensor:
        """Exchanges blocks in rounds: in round r, positions p and q exchange if p + q = r, modulo the group's size.

        Among three cores, positions 0 and 1 exchange in round 1 while position 2 keeps its own block, since 2 + 2 = 1
        modulo 3. So every pair meets once.
        """
        size = group.size

        def exchange(turn: tf.Tensor, received: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            partner = tf.math.floormod(turn - pairs.own_position, size)
            both = self._emit_in(
                group,
                tf.raw_ops.CollectiveGatherV2,
                input=tf.gather(blocks, partner[None]),
                group_size=tf.where(tf.equal(partner, pairs.own_position), 1, 2),
                group_key=tf.gather(pairs.keys, partner),
            )
            theirs = tf.gather(both, tf.gather(pairs.rows, partner[None]))
            return turn + 1, tf.tensor_scatter_nd_update(received, partner[None, None], theirs)

        # One round at a time: all cores must meet in the same order.
        loop = tf.while_loop(lambda turn, _: turn < size, exchange, (0, tf.zeros_like(blocks)), parallel_iterations=1)
        return tf.ensure_shape(loop[1], blocks.shape)

    def _gather_in_stages(self, x: tf.Tensor, stages: BoundStages) -> tf.Tensor:
        """Gathers first across processes, among cores of the same number, then within each process."""
        blocks = self._gather_blocks(x, stages.across)
        if stages.within is not None:
            blocks = _exchanged_leading(self._gather_blocks(blocks, stages.within))
        blocks = tf.reshape(blocks, [stages.size, *x.shape])
        return blocks if stages.placed is None else tf.gather(blocks, stages.placed)

    def _exchange_in_stages(self, blocks: tf.Tensor, stages: BoundStages) -> tf.Tensor:
        """Exchanges within each process first, then between processes.

        Member m of a process collects all blocks of this process that go to the members m of all processes. Then the
        members m exchange with one another. So each pair of processes sends few large messages.
        """
        moved = self._exchange(self._exchange_within(blocks, stages), stages.across)
        moved = tf.reshape(moved, blocks.shape)
        return moved if stages.placed is None else tf.gather(moved, stages.placed)

    def _exchange_within(self, blocks: tf.Tensor, stages: BoundStages) -> tf.Tensor:
        """Exchanges blocks within the process.

        The result is `[processes, members, ..]`: by the destination process, then by the sending member.
        """
        by_place = blocks if stages.places is None else tf.gather(blocks, stages.places)
        by_place = tf.reshape(by_place, [stages.across.size, stages.members, *blocks.shape[1:]])
        if stages.within is None:
            return by_place
        return _exchanged_leading(self._exchange(_exchanged_leading(by_place), stages.within))

    def _reduce_scatter_in_stages(self, blocks: tf.Tensor, stages: BoundStages) -> tf.Tensor:
        """Sums the terms of this process's members, before sending the sums to other processes."""
        if stages.members == 1 and stages.places is None:
            return stacked_sum(self._exchange(blocks, stages.across))
        terms = _exchanged_leading(self._exchange_within(blocks, stages))
        return stacked_sum(self._exchange(stacked_sum(terms), stages.across))

    def _reduce_in_stages(self, x: tf.Tensor, stages: BoundStages, merge_op: str) -> tf.Tensor:
        """Reduces in three stages. Each core reduces one part of the elements.

        Each member of a process reduces its part over the process, then over the other processes. At the end all parts
        are gathered. Terms are added in the order of places, so that sums have the same bits for any number of real
        processes.
        """
        combine, elements = STACKED[merge_op], x.shape.num_elements()
        parts = stages.across.size * stages.members
        flat = tf.pad(tf.reshape(x, [elements]), [[0, -elements % parts]])  # so that the parts have equal sizes
        own = tf.reshape(flat, [stages.members, -1])
        if stages.within is not None:
            own = combine(self._exchange(own, stages.within))
        own = combine(self._exchange(tf.reshape(own, [stages.across.size, -1]), stages.across))
        whole = self._gather_blocks(own, stages.across)
        if stages.within is not None:
            whole = self._gather_blocks(whole, stages.within)
        return tf.reshape(tf.slice(tf.reshape(whole, [-1]), [0], [elements]), x.shape)

    def _send_and_receive(self, sent: tf.Tensor, permutation: BoundPermutation) -> tf.Tensor:
        """Sends a slice to one core and receives one from another, by two gathers over groups of two.

        Only the sender's half of each gather is used. If two cores exchange slices, one gather does both. A core that
        keeps its own slice is alone in its group. The two gathers must not be ordered, since the core that sends to
        this one may wait for this one to send. So each direction has a separate token.
        """
        options: dict[str, Any] = {
            "input": sent,
            "crosses": True,  # for some cores
            "group_size": 2 if permutation.moves is None else permutation.moves + 1,
            "instance_key": self.new_instance_key(),
        }
        both = self._emit(tf.raw_ops.CollectiveGatherV2, group_key=permutation.send_key, **options)
        if permutation.receive_key is not None:
            both = self._emit(tf.raw_ops.CollectiveGatherV2, BACKWARD, group_key=permutation.receive_key, **options)
        return tf.ensure_shape(tf.gather(both, permutation.row[None]), sent.shape)

    def new_instance_key(self) -> int:
        """Makes a new key for the next collective."""
        if self._instance_keys is not None:
            return self._instance_keys()
        return collective_runtime().new_instance_key(spans_processes=self._waited is not None)

    def _leave(self, counter: tf.Tensor) -> None:
        """Makes a counter even. An error elsewhere may have ended the last step while this core was in a collective."""
        value = tf.raw_ops.ReadVariableOp(resource=counter, dtype=tf.int64)
        tf.raw_ops.AssignAddVariableOp(resource=counter, value=tf.bitwise.bitwise_and(value, self._one))

    def _emit_in(self, group: BoundGroup, op: Callable[..., tf.Tensor], **options: Any) -> tf.Tensor:
        return self._emit(op, group.token, crosses=group.crosses, **options)

    def _emit(
        self, op: Callable[..., tf.Tensor], token: int = FORWARD, *, crosses: bool = False, **options: Any
    ) -> tf.Tensor:
        """Emits the op between two increments of its counter. While the counter is odd, the watchdog sees the op wait.

        The token is on the core's own device, so the op is placed there. Automatic control dependencies order all ops
        with the same token. The counter is on the device where the core computes.
        """
        handle, counter = self._tokens[token], self._counters[token]
        options.setdefault("instance_key", self.new_instance_key())
        with tf.control_dependencies([options["input"]]):  # a core that still computes its input does not wait yet
            entered = tf.raw_ops.AssignAddVariableOp(resource=counter, value=self._one)
        with tf.control_dependencies([entered]):
            options["input"] = tf.identity(options["input"])
        if crosses and self._waited is not None:
            result = _timed(lambda: op(ordering_token=[handle], **options), options["input"], self._waited)
        else:
            result = op(ordering_token=[handle], **options)
        result = tf.identity(result)
        with tf.control_dependencies([result]):
            tf.raw_ops.AssignAddVariableOp(resource=counter, value=self._one)
        return result


def _timed(communicate: Callable[[], tf.Tensor], sent: tf.Tensor, waited: tf.Tensor) -> tf.Tensor:
    """Adds the microseconds from the availability of the input to the availability of the result to a counter."""
    began = _time_after(sent)
    with tf.control_dependencies([began]):
        result = communicate()
    microseconds = tf.cast((_time_after(result) - began) * 1e6, tf.int64)
    tf.raw_ops.AssignAddVariableOp(resource=waited, value=microseconds)
    return result


def _time_after(x: tf.Tensor) -> tf.Tensor:
    """The time at which x is available, in seconds, float64[]."""
    with tf.control_dependencies([x]):
        now = tf.timestamp()
    # TensorFlow would order all timestamps of a program, and so the two directions of a permute. But on some cores the
    # first direction waits for the second.
    if (dependencies := tf.compat.v1.get_default_graph().experimental_acd_manager) is not None:
        dependencies.run_independently(now.op)
    return now


def _exchanged_leading(x: tf.Tensor) -> tf.Tensor:
    """Transposes `[a, b, ..]` to `[b, a, ..]`."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _carried(move: Callable[[tf.Tensor], tf.Tensor], blocks: tf.Tensor, takes: Sequence[tf.DType]) -> tf.Tensor:
    """Moves `[n, m]` blocks, as 32-bit words if the collective does not support their type."""
    if blocks.dtype in takes:
        return move(blocks)
    return bitcast.from_words(move(bitcast.to_words(blocks)), blocks.dtype, static_shape(blocks)[1])
