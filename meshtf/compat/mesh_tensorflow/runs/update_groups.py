"""Groups of updates that a session always runs together, because the same TensorFlow operations wait for them.

For example, `tf.group(update_a, update_b)` waits for both, so they are one group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tensorflow as tf

from meshtf.graph.operation import Operation


class UpdateGroups:
    """The language's assignments, each with the TensorFlow operation that does it."""

    def __init__(self) -> None:
        self._nodes: list[tuple[tuple[Operation, ...], tf.Operation]] = []
        self._groups: dict[Operation, frozenset[Operation]] = {}
        self._version: int | None = None

    def add(self, operations: Sequence[Operation], node: tf.Operation) -> None:
        """Registers the node that does these assignments."""
        self._nodes.append((tuple(operations), node))
        self._version = None

    def of(self, operations: Collection[Operation]) -> frozenset[Operation]:
        """All assignments that happen together with these, in the graph as it is now."""
        version = self._nodes[0][1].graph.version
        if self._version != version:
            self._find()
            self._version = version
        return self._groups[next(iter(operations))]

    def _find(self) -> None:
        ends = _last_consumers([node for _, node in self._nodes])
        together: dict[frozenset[tf.Operation], set[Operation]] = {}
        for operations, node in self._nodes:
            together.setdefault(ends[node], set()).update(operations)
        self._groups = {o: frozenset(group) for group in together.values() for o in group}


def _last_consumers(nodes: Sequence[tf.Operation]) -> dict[tf.Operation, frozenset[tf.Operation]]:
    """The operations that depend on a node and on which nothing depends, for each node.

    A node on which nothing depends gets itself.
    """
    if not nodes:
        return {}
    operations = nodes[0].graph.get_operations()
    consumers: dict[tf.Operation, list[tf.Operation]] = {}
    for operation in operations:
        for before in [*(x.op for x in operation.inputs), *operation.control_inputs]:
            consumers.setdefault(before, []).append(operation)
    return {node: _ends_after(node, consumers) for node in nodes}


def _ends_after(node: tf.Operation, consumers: dict[tf.Operation, list[tf.Operation]]) -> frozenset[tf.Operation]:
    ends, seen, waiting = set(), {node}, [node]
    while waiting:
        operation = waiting.pop()
        behind = consumers.get(operation, [])
        if not behind:
            ends.add(operation)
        for consumer in behind:
            if consumer not in seen:
                seen.add(consumer)
                waiting.append(consumer)
    return frozenset(ends)
