"""The collectives of one per-core program, before it is traced: what each core must be handed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import UsageError
from meshtf.mesh_impl.device_names import device_order
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives, BoundGroup, BoundPairs, BoundPermutation
from meshtf.mesh_impl.spmd._group_facts import LARGEST_ALLTOALL, GroupFacts
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning.collectives.permute import is_exchange


@dataclasses.dataclass(frozen=True)
class DeviceMesh:
    """Devices in a mesh, by core number, and how long one of them may wait in a collective."""

    shape: Shape
    devices: tuple[str, ...]
    timeout_seconds: float

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size


class SpmdCollectives:
    """The groups and permutations of one program, and the numbers by which each core finds its own.

    The program is traced once for all cores, so what differs between them arrives as arguments: one vector of int32,
    and the ordering tokens of the core's device. A program without communication is handed nothing.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        axes: Iterable[Sequence[str]],
        permutations: Iterable[Sequence[int]] = (),
        exchanging: Iterable[Sequence[str]] | None = None,
    ) -> None:
        """`axes`: every ordered tuple of mesh axes of some collective; `permutations`: destination core of each core.
        `exchanging`: the axes of those that are alltoalls or reduce-scatters (by default any may be).

        Raises:
          LayoutError: for an axis that the mesh does not have.
          UsageError: for a permutation that is none of the mesh's cores.
        """
        self._mesh = mesh
        self._exchanging = None if exchanging is None else {tuple(a) for a in exchanging}
        ranked = sorted(range(mesh.size), key=lambda core: device_order(mesh.devices[core]))
        self._order = np.argsort(ranked)
        every_axes = dict.fromkeys(tuple(a) for a in axes)
        groups = {a: GroupFacts.of(mesh.shape, a, self._order) for a in every_axes}
        self._groups = {a: facts for a, facts in groups.items() if facts.size > 1}
        self._permutations = [p for p in dict.fromkeys(tuple(p) for p in permutations) if self._moves(p)]
        # Keys are given out here, for all cores in order, so that processes which run the same programs agree on them.
        self._columns: dict[str, np.ndarray] = {}
        for axes_, facts in self._groups.items():
            self._columns |= self._group_columns(axes_, facts)
        for i, permutation in enumerate(self._permutations):
            self._columns |= self._permutation_columns(f"permutation_{i}", permutation)

    def signature(self) -> list[tf.TensorSpec]:
        """What the per-core program takes besides its core's number and its data."""
        if not self._columns:
            return []
        length = sum(_length(column) for column in self._columns.values())
        return [tf.TensorSpec([length], tf.int32), tf.TensorSpec([], tf.resource), tf.TensorSpec([], tf.resource)]

    def arguments(self, core: int) -> list[tf.Tensor]:
        """The same for one core, made on its device; to be called where its program is."""
        if not self._columns:
            return []
        device = self._mesh.devices[core]
        tokens = collective_runtime().tokens(device, self._mesh.timeout_seconds)
        facts = np.concatenate([np.atleast_1d(column[core]) for column in self._columns.values()])
        with tf.device(device):
            return [tf.constant(facts, tf.int32), *(token.handle for token in tokens)]

    def bind(self, arguments: Sequence[tf.Tensor]) -> BoundCollectives:
        """Inside the trace of the per-core program, outside its loops: emits collectives that use these arguments."""
        if not self._columns:
            return BoundCollectives({}, {}, (), self._mesh.shape)
        facts, *tokens = arguments
        columns, start = {}, 0
        for name, column in self._columns.items():
            fact = tf.slice(facts, [start], [_length(column)])
            columns[name] = fact if column.ndim == 2 else tf.reshape(fact, [])
            start += _length(column)
        groups = {axes: _bind_group("+".join(axes), g.size, columns) for axes, g in self._groups.items()}
        permutations = {p: _bind_permutation(f"permutation_{i}", columns) for i, p in enumerate(self._permutations)}
        return BoundCollectives(groups, permutations, tokens, self._mesh.shape)

    def _moves(self, destinations: tuple[int, ...]) -> bool:
        if sorted(destinations) != list(range(self._mesh.size)):
            raise UsageError(f"{destinations} is not a permutation of the {self._mesh.size} cores of the mesh")
        return destinations != tuple(range(self._mesh.size))

    def _group_columns(self, axes: tuple[str, ...], facts: GroupFacts) -> dict[str, np.ndarray]:
        """`int[cores]` or `int[cores, members]` each."""
        name, exchanges = "+".join(axes), self._exchanging is None or axes in self._exchanging
        runtime, devices = collective_runtime(), self._mesh.devices
        columns = {f"{name} key": facts.keys(lambda cores: runtime.group_key([devices[core] for core in cores]))}
        if not facts.in_order:
            columns |= {f"{name} ranks": facts.ranks(), f"{name} positions": facts.positions()}
        if facts.size > LARGEST_ALLTOALL and exchanges:
            cores, partners = np.arange(self._mesh.size)[:, None], facts.partners()
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


def _bind_group(name: str, size: int, columns: dict[str, tf.Tensor]) -> BoundGroup:
    pairs = None
    if f"{name} pair_keys" in columns:
        pairs = BoundPairs(*(columns[f"{name} {fact}"] for fact in ("own_position", "pair_keys", "pair_rows")))
    ranks, positions = columns.get(f"{name} ranks"), columns.get(f"{name} positions")
    return BoundGroup(size, columns[f"{name} key"], ranks, positions, pairs)


def _bind_permutation(name: str, columns: dict[str, tf.Tensor]) -> BoundPermutation:
    send_key, receive_key = columns[f"{name} send_key"], columns.get(f"{name} receive_key")
    return BoundPermutation(send_key, receive_key, columns[f"{name} row"], columns.get(f"{name} moves"))
