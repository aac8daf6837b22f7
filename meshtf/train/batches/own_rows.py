"""The rows of a batch that the cores of a process read, so that the process need make no others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from meshtf.mesh_impl.device_names import process_of
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf_programs.strict_json import json_text


def own_rows(step: mtf.Function, batch: mtf.Dimension) -> slice:
    """Returns the rows of a program's inputs [batch, ...] that this process makes. On a mesh of one process, it
    makes all rows.
    """
    return slice(0, batch.size) if _cluster_of(step) is None else rows_read(step.input_slices())


def rows_read(slices: Mapping[str, tuple[slice, ...]]) -> slice:
    """Returns the smallest range that contains all rows read of inputs [batch, ...]. It is empty if nothing is
    read.

    Args:
      slices: the part of each input that is read, as `mtf.Function.input_slices` returns it.
    """
    rows = [box[0] for box in slices.values() if box[0].stop > box[0].start]
    if not rows:
        return slice(0, 0)
    return slice(min(each.start for each in rows), max(each.stop for each in rows))


@dataclasses.dataclass(frozen=True, eq=False)
class CountedRows:
    """The rows of a batch that this process counts. Each row is counted by one process.

    Attributes:
      rows: an index of the rows.
    """

    rows: slice | np.ndarray
    _cluster: Cluster | None

    @classmethod
    def of(cls, step: mtf.Function, batch: mtf.Dimension) -> CountedRows:
        """Returns the rows to count in a program's inputs [batch, ...]. All processes of its mesh call it, in
        the same order.
        """
        own, cluster = own_rows(step, batch), _cluster_of(step)
        if cluster is None:
            return cls(own, None)
        told = cluster.gathered(cluster.meeting("rows of batches"), json_text([own.start, own.stop]))
        everybody = [slice(*json.loads(rows)) for rows in told]
        return cls(counted_rows(everybody, cluster.process_index), cluster)

    def summed(self, counted: int) -> int:
        """Returns the sum of the counts of all processes. All of them call it, in the same order."""
        if self._cluster is None:
            return counted
        return sum(map(int, self._cluster.gathered(self._cluster.meeting("counted rows"), str(counted))))


def counted_rows(everybody: Sequence[slice], process: int) -> np.ndarray:
    """Returns the rows that this process makes and no earlier process makes, [n] int64."""
    rows = np.arange(everybody[process].start, everybody[process].stop)
    for other in everybody[:process]:
        rows = rows[(rows < other.start) | (rows >= other.stop)]
    return rows


def _cluster_of(step: mtf.Function) -> Cluster | None:
    """Returns the cluster whose processes share the program's mesh, or None if one process has all of it."""
    cluster = collective_runtime().cluster
    if cluster is None or len(set(map(process_of, step.lowering.mesh_impl.devices))) == 1:
        return None
    return cluster
