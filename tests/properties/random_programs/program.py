"""A random program: its steps, its graph in the language, and the same computation on whole arrays by TensorFlow."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf

Reference = Callable[..., Any]


@dataclasses.dataclass(eq=False)
class Node:
    """A tensor of the program beside its value on whole arrays: float64, int64 or bool."""

    tensor: mtf.Tensor
    value: tf.Tensor
    is_exact: bool
    """Whether rounding has not touched it, so that every layout gives the same bits."""
    is_input: bool = False
    is_differentiable: bool = False
    """An input by which gradients are taken."""

    @property
    def shape(self) -> mtf.Shape:
        return self.tensor.shape

    @property
    def names(self) -> list[str]:
        return self.shape.dimension_names

    @property
    def array(self) -> np.ndarray:
        return self.value.numpy()


@dataclasses.dataclass(eq=False)
class Step:
    """One operation: what was written, from which nodes, to which, and its reference.

    turns: of a loop, how often its body is computed in a row, each time from what the last one gave.
    factors: how many numbers are multiplied with one another. Each core rounds the product of its own.
    """

    text: str
    inputs: Sequence[Node]
    outputs: Sequence[Node]
    reference: Reference
    turns: int = 1
    factors: int = 1


@dataclasses.dataclass(eq=False)
class Program:
    """Steps, what is fed, what is fetched, and the expected value of each fetch."""

    graph: mtf.Graph
    max_padding: float = 0.0
    """Of a slice, how much its layouts may make padding."""
    nodes: list[Node] = dataclasses.field(default_factory=list)
    steps: list[Step] = dataclasses.field(default_factory=list)
    cases: list[str] = dataclasses.field(default_factory=list)
    feeds: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    fetches: list[mtf.Tensor] = dataclasses.field(default_factory=list)
    expected: list[np.ndarray] = dataclasses.field(default_factory=list)
    labels: list[str] = dataclasses.field(default_factory=list)
    exact: list[bool] = dataclasses.field(default_factory=list)
    """Of each fetch, whether no layout may change a bit of it."""
    variables: dict[str, Node] = dataclasses.field(default_factory=dict)
    """The node that each variable holds when the program has run."""
    first_operation: int = 0
    forward_operations: int = 0
    """Where in the graph the program begins, and how many operations were there before its gradients."""

    def run_reference(self, inputs: dict[Node, tf.Tensor]) -> dict[Node, tf.Tensor]:
        """The value of every node, from those of the inputs."""
        values = dict(inputs)
        for step in self.steps:
            results = step.reference(*(values[x] for x in step.inputs))
            results = results if isinstance(results, list | tuple) else [results]
            values.update(zip(step.outputs, results, strict=True))
        return values

    def expect(self, tensor: mtf.Tensor, value: Any, label: str, *, is_exact: bool = False) -> None:
        self.fetches.append(tensor)
        self.expected.append(np.asarray(value))
        self.labels.append(label)
        self.exact.append(is_exact)

    @property
    def dtypes(self) -> set[tf.DType]:
        return {n.tensor.dtype for n in self.nodes}

    def __str__(self) -> str:
        lines = [f"{n.tensor!r}  (input)" for n in self.nodes if n.is_input]
        lines += [f"{', '.join(map(repr, (o.tensor for o in s.outputs)))} = {s.text}" for s in self.steps]
        return "\n".join([*lines, f"fetches: {', '.join(self.labels)}"])


def spread(x: tf.Tensor, own: Sequence[str], target: mtf.Shape) -> tf.Tensor:
    """A whole array over dimensions `own`, repeated over those of `target` and in their order.

    One dimension after the other: TensorFlow broadcasts at once over no more than five runs of dimensions that are
    repeated, or are not.
    """
    order = [d.name for d in target if d.name in own]
    x = tf.transpose(x, [list(own).index(name) for name in order])
    sizes = [d.size if d.name in own else 1 for d in target]
    for i, dim in enumerate(target):
        if dim.name not in own:
            before, after = math.prod(sizes[:i]), math.prod(sizes[i:])
            x = tf.broadcast_to(tf.reshape(x, [before, 1, after]), [before, dim.size, after])
            sizes[i] = dim.size
    return tf.reshape(x, sizes)


def reduce_over(function: Reference, x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """A reduction over axes, which are one on the way, since the gradient of one over several broadcasts; see `spread`.

    Not one after the other: of equal maxima, each is to get the same share of the gradient.
    """
    if not axes:
        return x
    kept = [i for i in range(x.shape.rank) if i not in axes]
    sizes, reduced = [x.shape[i] for i in kept], [x.shape[i] for i in axes]
    matrix = tf.reshape(tf.transpose(x, [*kept, *axes]), [math.prod(sizes), math.prod(reduced)])
    return tf.reshape(function(matrix, 1), sizes)


def summed(x: tf.Tensor, own: mtf.Shape, target: mtf.Shape) -> tf.Tensor:
    """A whole array over `own`, summed over what `target` lacks, repeated over what only `target` has."""
    kept = [d.name for d in own if target.has(d.name)]
    axes = [i for i, d in enumerate(own) if not target.has(d.name)]
    return spread(reduce_over(tf.reduce_sum, x, axes), kept, target)
