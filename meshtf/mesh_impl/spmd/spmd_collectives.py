"""The collectives of one per-core program before it is traced, and the arguments that each core needs for them.

The traced program refers to "the group along cols", not to "the group of cores 2 and 3". Each core finds its own group
in a vector of numbers that it receives as an argument. On rows:2 cols:2, with a sum over cols, the vectors are

    core    0    1    2    3
    key     7    7    8    8        cores of one group have one key

If the devices are not in the order of the mesh, the vector also has the rank of each position. For groups of more than
ten cores it has the keys of pairs (see `LARGEST_ALLTOALL`). `_columns` has one such table for each fact. The program
receives the facts through `signature` (their types), `arguments` (one core's values) and `bind` (traced tensors).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import UsageError
from meshtf.mesh_impl.device_names import device_order, process_of
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives
from meshtf.mesh_impl.spmd._bound_groups import (
    BETWEEN_PROCESSES,
    FORWARD,
    BoundGroup,
    BoundPairs,
    BoundPermutation,
    BoundStages,
)
from meshtf.mesh_impl.spmd._group_facts import LARGEST_ALLTOALL, GroupFacts
from meshtf.mesh_impl.spmd._stage_facts import StageFacts
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning.collectives.permute import is_exchange
from meshtf.planning.process_spans import ProcessOfCore


@dataclasses.dataclass(frozen=True)
class DeviceMesh:
    """The devices of a mesh, by core number.

    It also has the time that a device may wait in a collective, and the process of each core if collectives between
    processes have stages.
    """

    shape: Shape
    devices: tuple[str, ...]
    timeout_seconds: float
    process_of_core: ProcessOfCore = ()

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size


class SpmdCollectives:
    """The groups and permutations of one program, and the numbers by which each core finds its own groups.

    The program is traced once for all cores. So everything that differs between cores is an argument:

    - one vector of int32 with the core's numbers;
    - the ordering tokens of the core's device;
    - the device's counters of collectives;
    - the counter of the time in collectives between processes, if the mesh spans processes.

    A program without communication has no such arguments.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        axes: Iterable[Sequence[str]],
        permutations: Iterable[Sequence[int]] = (),
        exchanging: Iterable[Sequence[str]] | None = None,
    ) -> None:
        """Collects the facts about each group and permutation.

        Args:
          mesh: the devices.
          axes: the ordered tuples of mesh axes of all collectives.
          permutations: the destination of each core, for each permutation.
          exchanging: the axes of all alltoalls and reduce-scatters. The default is all of `axes`.

        Raises:
          LayoutError: for an axis that the mesh does not have.
          UsageError: if a permutation does not permute the mesh's cores.
        """
        self._mesh = mesh
        self._exchanging = None if exchanging is None else {tuple(a) for a in exchanging}
        ranked = sorted(range(mesh.size), key=lambda core: device_order(mesh.devices[core]))
        self._order = np.argsort(ranked)
        every_axes = dict.fromkeys(tuple(a) for a in axes)
        groups = {a: GroupFacts.of(mesh.shape, a, self._order) for a in every_axes}
        # A core that is alone in its group has nothing to send.
        self._groups = {a: facts for a, facts in groups.items() if facts.size > 1}
        staged = {a: StageFacts.of(g, self._order, mesh.process_of_core) for a, g in self._groups.items()}
        self._stages = {a: stages for a, stages in staged.items() if stages is not None}
        self._processes = np.asarray([process_of(device) for device in mesh.devices])
        self._spans_processes = len(set(self._processes.tolist())) > 1
        # On GPUs, NCCL's kernels would wait for one another if two groups communicated at once.
        on_processors = {tf.DeviceSpec.from_string(d).device_type for d in mesh.devices} == {"CPU"}
        self._token_between = BETWEEN_PROCESSES if on_processors else FORWARD
        self._permutations = [p for p in dict.fromkeys(tuple(p) for p in permutations) if self._moves(p)]
        # Keys are allocated here, for all cores in order, so that processes which run the same programs agree on them.
        self._columns: dict[str, np.ndarray] = {}
        for axes_, facts in self._groups.items():
            name, exchanges = "+".join(axes_), self._exchanging is None or axes_ in self._exchanging
            if axes_ in self._stages:
                self._columns |= self._stage_columns(name, facts, self._stages[axes_])
            else:
                self._columns |= self._group_columns(name, facts, exchanges)
        for i, permutation in enumerate(self._permutations):
            self._columns |= self._permutation_columns(f"permutation_{i}", permutation)

    def signature(self) -> list[tf.TensorSpec]:
        """The types of the per-core program's additional arguments, after its core's number and its data."""
        if not self._columns:
            return []
        length = sum(map(_length, self._columns.values()))
        handles = 2 * self._num_tokens + self._spans_processes
        return [tf.TensorSpec([length], tf.int32), *(tf.TensorSpec([], tf.resource) for _ in range(handles))]

    def arguments(self, core: int) -> list[tf.Tensor]:
        """The additional arguments of one core, on its device. Call it where its program is called."""
        if not self._columns:
            return []
        device = self._mesh.devices[core]
        runtime, count = collective_runtime(), self._num_tokens
        tokens = runtime.tokens(device)[:count]
        counters = runtime.counters(device, self._mesh.timeout_seconds)[:count]
        facts = np.concatenate([np.atleast_1d(column[core]) for column in self._columns.values()])
        waited = [runtime.waited(device)] if self._spans_processes else []
        return [tf.constant(facts, tf.int32), *(variable.handle for variable in (*tokens, *counters, *waited))]

    def bind(self, arguments: Sequence[tf.Tensor]) -> BoundCollectives:
        """The collectives that use these arguments. Call it in the trace of the per-core program, outside its loops."""
        if not self._columns:
            return BoundCollectives({}, {}, (), (), self._mesh.shape)
        count = self._num_tokens
        facts, tokens, counters = arguments[0], arguments[1 : 1 + count], arguments[1 + count : 1 + 2 * count]
        waited = arguments[-1] if self._spans_processes else None
        columns, start = {}, 0
        for name, column in self._columns.items():
            fact = tf.slice(facts, [start], [_length(column)])
            columns[name] = fact if column.ndim == 2 else tf.reshape(fact, [])
            start += _length(column)
        groups = {axes: self._bound_group(axes, columns) for axes in self._groups}
        permutations = {p: _bind_permutation(f"permutation_{i}", columns) for i, p in enumerate(self._permutations)}
        return BoundCollectives(groups, permutations, tokens, counters, self._mesh.shape, waited)

    def _moves(self, destinations: tuple[int, ...]) -> bool:
        if sorted(destinations) != list(range(self._mesh.size)):
            raise UsageError(f"{destinations} is not a permutation of the {self._mesh.size} cores of the mesh")
        return destinations != tuple(range(self._mesh.size))

    @property
    def _num_tokens(self) -> int:
        """The number of tokens that the program receives. The last token is for collectives between processes."""
        return BETWEEN_PROCESSES + 1 if self._spans_processes else BETWEEN_PROCESSES

    def _bound_group(self, axes: tuple[str, ...], columns: dict[str, tf.Tensor]) -> BoundGroup | BoundStages:
        name, size, stages = "+".join(axes), self._groups[axes].size, self._stages.get(axes)
        token = self._token_between if self._crosses(axes) else FORWARD
        if stages is None:
            return _bind_group(name, size, columns, crosses=self._crosses(axes), token=token)
        within = None
        if stages.within is not None:
            within = _bind_group(f"{name} within", stages.within.size, columns, token=token)
        across = _bind_group(f"{name} across", stages.across.size, columns, crosses=self._crosses(axes), token=token)
        return BoundStages(size, within, across, columns.get(f"{name} places"), columns.get(f"{name} placed"))

    def _crosses(self, axes: tuple[str, ...]) -> bool:
        """Whether a group along these axes has members in several processes."""
        return bool((np.ptp(self._processes[self._groups[axes].groups], axis=1) > 0).any())

    def _stage_columns(self, name: str, facts: GroupFacts, stages: StageFacts) -> dict[str, np.ndarray]:
        columns = self._group_columns(f"{name} across", stages.across, exchanges=True)
        if stages.within is not None:
            columns |= self._group_columns(f"{name} within", stages.within, exchanges=True)
        if not stages.in_order:
            placed = np.argsort(stages.places, axis=1)
            columns |= {f"{name} places": facts.by_core(stages.places), f"{name} placed": facts.by_core(placed)}
        return columns

    def _group_columns(self, name: str, facts: GroupFacts, exchanges: bool) -> dict[str, np.ndarray]:
        """`int[cores]` or `int[cores, members]` each."""
        runtime, devices = collective_runtime(), self._mesh.devices
        columns = {f"{name} key": facts.keys(lambda cores: runtime.group_key([devices[core] for core in cores]))}
        if not facts.in_order:
            columns |= {f"{name} ranks": facts.ranks(), f"{name} positions": facts.positions()}
        if facts.size > LARGEST_ALLTOALL and exchanges:
            cores, partners = np.arange(self._mesh.size)[:, None], facts.partners()
            # Both members of a pair must compute the same key, so it depends on the smaller and the larger number.
            first, second = np.minimum(cores, partners), np.maximum(cores, partners)
            columns |= {
                f"{name} own_position": facts.own_position(),
                f"{name} pair_keys": runtime.pair_keys(devices) + first * self._mesh.size + second,
                f"{name} pair_rows": facts.partner_rows(),
            }
        return columns

    def _permutation_columns(self, name: str, permutation: tuple[int, ...]) -> dict[str, np.ndarray]:
        """`int[cores]` each. A core that keeps its own values is alone, under a key for each direction."""
        size, first_key = self._mesh.size, collective_runtime().pair_keys(self._mesh.devices)
        cores, destinations, sources = np.arange(size), np.asarray(permutation), np.argsort(permutation)
        moves, alone = destinations != cores, size * size + cores
        rows = self._order[sources] > self._order[cores]
        if is_exchange(permutation):
            pair = np.minimum(cores, destinations) * size + np.maximum(cores, destinations)
            columns = {f"{name} send_key": first_key + np.where(moves, pair, alone)}
        else:
            columns = {
                f"{name} send_key": first_key + cores * size + destinations,
                f"{name} receive_key": first_key + np.where(moves, sources * size + cores, alone),
            }
        columns[f"{name} row"] = rows.astype(int)
        return columns if moves.all() else columns | {f"{name} moves": moves.astype(int)}


def _length(column: np.ndarray) -> int:
    return 1 if column.ndim == 1 else column.shape[1]


def _bind_group(
    name: str, size: int, columns: dict[str, tf.Tensor], *, crosses: bool = False, token: int = FORWARD
) -> BoundGroup:
    pairs = None
    if f"{name} pair_keys" in columns:
        pairs = BoundPairs(*(columns[f"{name} {fact}"] for fact in ("own_position", "pair_keys", "pair_rows")))
    ranks, positions = columns.get(f"{name} ranks"), columns.get(f"{name} positions")
    return BoundGroup(size, columns[f"{name} key"], ranks, positions, pairs, crosses, token)


def _bind_permutation(name: str, columns: dict[str, tf.Tensor]) -> BoundPermutation:
    send_key, receive_key = columns[f"{name} send_key"], columns.get(f"{name} receive_key")
    return BoundPermutation(send_key, receive_key, columns[f"{name} row"], columns.get(f"{name} moves"))
