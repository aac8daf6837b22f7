"""The run of a lowering under eager execution. There is one run, and everything in it happens at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from meshtf.compat.mesh_tensorflow._graph import Graph
from meshtf.compat.mesh_tensorflow.runs.session_runs import Lowerings, with_values
from meshtf.graph.tensor import Tensor
from meshtf.ops.variables.variable import Assign


class EagerRun:
    """The one run of a lowering under eager execution.

    It begins with the masters' values at the first export or update. It begins again when masters are copied to slices.
    As in Mesh TensorFlow, every assignment happens once even if a program asks for only some. An exported tensor has
    the value from before the assignments.

    Args:
      graph: the program's graph.
      lowerings: the lowerings by the assignments that they do.
      fill: a function that gives a variable's slices the master's value.
      masters_follow: whether an update also assigns the new values to the masters.
    """

    def __init__(
        self, graph: Graph, lowerings: Lowerings, fill: Callable[[str, np.ndarray], object], *, masters_follow: bool
    ) -> None:
        self._graph, self._lowerings, self._fill = graph, lowerings, fill
        self._masters_follow = masters_follow
        self._has_begun = self._is_updated = False
        self._before: dict[str, np.ndarray] = {}

    def begin(self) -> None:
        """Gives the slices the masters' values."""
        for name, master in self._graph.masters.items():
            self._fill(name, master.numpy())
        self._has_begun, self._is_updated = True, False
        self._before = {}

    def export(self, x: Tensor) -> tf.Tensor:
        """The value that a tensor had before the updates."""
        self._begin_once()
        with with_values(self._lowerings.store, self._before):
            return self._lowerings.updating(frozenset()).export_to_tf_tensor(x)

    def update(self) -> None:
        """Does all assignments of the graph together, unless they are done already."""
        self._begin_once()
        if self._is_updated:
            return
        store = self._lowerings.store
        assignments = frozenset(o for o in self._graph.operations if isinstance(o, Assign))
        names = {o.variable.full_name for o in assignments}
        self._before = {name: store[name] for name in names}
        self._lowerings.updating(assignments).run([], {})
        self._is_updated = True
        if self._masters_follow:
            self.copy_to_masters(names)

    def copy_to_masters(self, names: set[str] | None = None) -> None:
        """Gives the masters, by default all, the values of their slices."""
        self._begin_once()
        for name, master in self._graph.masters.items():
            if names is None or name in names:
                master.assign(self._lowerings.store[name].astype(master.dtype.base_dtype.as_numpy_dtype))

    def _begin_once(self) -> None:
        if not self._has_begun:
            self.begin()
