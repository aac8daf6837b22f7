"""Local work as one core does it, from which that of all cores is made, operation by operation."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from meshtf.lowering.emit._cheap_operations import cheap_operations
from meshtf.lowering.emit.core_program import TracedCore
from meshtf.lowering.emit.spread import Spread, Spreading
from meshtf.planning.plan import Compute, Plan, Value


class KernelGraph:
    """A graph in which local work stands as one core does it, operation by operation: that of all kernels.

    To make an operation costs a tenth of a millisecond, whatever it is: what a kernel is given is as often one and the
    same placeholder as another kernel is given the like.
    """

    def __init__(self) -> None:
        # In a tf.Graph == of tensors would be Python's; no public name makes the graph of a function by itself.
        self._graph = FuncGraph("kernels")
        self._given: dict[tuple[tf.DType, tuple[int, ...], int], tf.Tensor] = {}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with tf.init_scope(), self._graph.as_default(), cheap_operations():
            yield

    @property
    def captured(self) -> dict[Any, tf.Tensor]:
        """From what stands in the graph for a tensor from outside to that tensor."""
        return {inside.ref(): x for x, inside in self._graph.captures}

    def given(self, values: Sequence[Value]) -> list[tf.Tensor]:
        """Inside: in place of values, a tensor for each."""
        seen: collections.Counter[tuple[tf.DType, tuple[int, ...]]] = collections.Counter()
        found = []
        for value in values:
            kind = value.dtype, value.slice_shape
            key = *kind, seen[kind]
            seen[kind] += 1
            if key not in self._given:
                self._given[key] = tf.compat.v1.placeholder(*kind)
            found.append(self._given[key])
        return found


class _Places(dict[str, tf.Tensor]):
    """By mesh axis, where a core is along it, as far as it is asked for that."""

    def __missing__(self, axis: str) -> tf.Tensor:
        self[axis] = tf.compat.v1.placeholder(tf.int32, [])
        return self[axis]


class Kernel:
    """Local work as one core does it.

    Attributes:
      asked: the mesh axes along which it asks where a core is.
    """

    def __init__(self, plan: Plan, instruction: Compute, graph: KernelGraph) -> None:
        self._places = _Places()
        with graph.entered():
            self._given = graph.given(instruction.inputs)
            self._results = on_core(TracedCore(plan, self._places), instruction, self._given)
        self.asked = frozenset(self._places)
        self._operations = _makers(self._results)
        self._constants = {inside: Spread((), x) for inside, x in graph.captured.items()}

    def run(self, spreading: Spreading, given: Sequence[Spread], places: Mapping[str, tf.Tensor]) -> list[Spread]:
        """What cores make of what they are given, which stand at these coordinates of each axis.

        Raises:
          NotSpreadError: it has to be done core by core.
        """
        made = {**self._constants, **{x.ref(): spread for x, spread in zip(self._given, given, strict=True)}}
        for name, place in self._places.items():
            made[place.ref()] = Spread((name,), tf.constant(places[name]))
        for operation in self._operations:
            results = spreading.apply(operation, [made[x.ref()] for x in operation.inputs])
            made.update(zip((x.ref() for x in operation.outputs), results, strict=True))
        return [made[x.ref()] for x in self._results]


def _makers(results: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """The operations of a graph by which these are made, but for what it is given, each behind those of its inputs."""
    found: dict[tf.Operation, None] = {}
    waiting = [x.op for x in reversed(results)]
    while waiting:
        operation = waiting[-1]
        before = [x.op for x in operation.inputs if x.op.type != "Placeholder" and x.op not in found]
        if before:
            waiting += before[::-1]
            continue
        waiting.pop()
        if operation.type != "Placeholder":
            found[operation] = None
    return list(found)


def on_core(core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What a core makes of slices."""
    results = instruction.emit(core, *slices)
    return [results] if isinstance(results, tf.Tensor) else list(results)
