"""Notes: tensors that a part of a program returns besides its results, such as the range of a layer's inputs.

A note is an additional result of each enclosing stack of layers, scan and recomputed part. Outside a scan, it has the
scan's dimension in front.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from meshtf.errors import GraphError
from meshtf.graph.graph import Graph
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import vectorization_of


@contextlib.contextmanager
def noting(graph: Graph) -> Iterator[list[tuple[str, Tensor]]]:
    """Collects the notes that are made inside, by their names, in order."""
    notes: list[tuple[str, Tensor]] = []
    graph.notes.append((graph.place, notes))
    try:
        yield notes
    finally:
        graph.notes.pop()


def note(name: str, x: Tensor) -> None:
    """Adds a tensor to the notes of the innermost enclosing `noting`.

    Raises:
      GraphError: the tensor is in a pipeline, or in a branch or loop that cannot return notes.
    """
    place, notes = x.graph.notes[-1]
    if vectorization_of(x.graph.layer_scopes):
        raise GraphError(
            f'{x} is noted for "{name}" inside a pipeline, whose stages also compute while they wait; leave the '
            f"pipeline out of this program"
        )
    if x.graph.place is not place:
        raise GraphError(
            f'{x} is noted for "{name}" inside {x.graph.place.what}, out of which no note leads: only stacks of '
            f"layers, scans and recomputed parts hand notes on"
        )
    notes.append((name, x))


class NotesOfBlock:
    """The notes of a function that becomes a block. The block returns them after the function's results."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: list[str] = []

    def collected(self, fn: Callable[..., Any]) -> Callable[..., tuple[Any, list[Tensor]]]:
        """Wraps the function to return its notes as well."""
        if not callable(fn):
            return fn  # `build_block` raises an error for it

        @functools.wraps(fn)
        def with_notes(*arguments: Any) -> tuple[Any, list[Tensor]]:
            with noting(self._graph) as notes:
                results = fn(*arguments)
            self._names = [name for name, _ in notes]
            return results, [x for _, x in notes]

        return with_notes

    def handed_on(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Returns the function's own results, and adds the notes after them to the `noting` outside the block."""
        own = len(results) - len(self._names)
        for name, x in zip(self._names, results[own:], strict=True):
            note(name, x)
        return list(results[:own])
