"""Summaries: values of the program that go to TensorBoard, if there is a summary writer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.call_sites import language_function, user_site
from meshtf.errors import DtypeError, GraphError, ShapeError, UsageError
from meshtf.graph.graph import Graph
from meshtf.graph.tensor import Tensor, check_tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """A tensor to be written under a name, by `tf.summary.scalar` or `tf.summary.histogram`."""

    name: str
    tensor: Tensor
    write: Callable[..., Any]


@language_function
def scalar_summary(name: str, x: Tensor) -> Tensor:
    """Returns x. Its value is written to TensorBoard each time the program runs under a default summary writer.

    Without a writer (`with writer.as_default(step=...)`), nothing is computed, sent or written for it.

    Args:
      name: the curve's name, under the open scopes.
      x: a scalar that the program computes, outside loops and branches.

    Raises:
      ShapeError: x is no scalar. GraphError: the name is taken.

    Examples:
      >>> loss = mtf.scalar_summary("loss", mtf.reduce_mean(x))
      >>> list(mesh.graph.summaries)
      ['loss']
    """
    if check_tensor(x).shape.ndims:
        raise ShapeError(f"a scalar is needed, not [{x.shape}]; reduce it, or use mtf.histogram_summary")
    return _registered(name, x, tf.summary.scalar)


@language_function
def histogram_summary(name: str, x: Tensor) -> Tensor:
    """Returns x. Its histogram is written to TensorBoard each time the program runs under a default summary writer.

    Without a writer, nothing is computed, sent or written for it. With a writer, the host joins the slices.

    Args:
      name: the histogram's name, under the open scopes.
      x: numbers of any shape that the program computes, outside loops and branches.

    Raises:
      DtypeError: x holds no real numbers. GraphError: the name is taken.

    Examples:
      >>> mtf.histogram_summary("activations", x)
      x [batch:4 hidden:8] float32
    """
    if not (check_tensor(x).dtype.is_floating or x.dtype.is_integer):
        raise DtypeError(f"a histogram needs real numbers, not {x.dtype.name}")
    return _registered(name, x, tf.summary.histogram)


def _registered(name: str, x: Tensor, write: Callable[..., Any]) -> Tensor:
    graph = x.graph
    graph.check_in_reach(x)
    if x.operation not in graph.program_operations:
        raise GraphError(f"{x} is inside a loop or a branch, so it may have many values or none; return it from there")
    full_name = graph.scoped(name)
    if full_name in graph.summaries:
        first = graph.summaries[full_name].tensor
        raise GraphError(f'there is already a summary "{full_name}", of {first}; give another name')
    graph.summaries[full_name] = Summary(full_name, x, write)
    return x


def wanted_summaries(graph: Graph) -> list[Summary]:
    """The graph's summaries, if there is a writer for them. Inside a tf.function, the writer must also have a step.

    They will be written with the writer's present step, although a later step may start before they have values.

    Raises:
      UsageError: the writer has no step.
    """
    if not graph.summaries:
        return []
    if tf.executing_eagerly() and not tf.summary.should_record_summaries():  # false without a writer
        return []
    step = tf.summary.experimental.get_step()
    if step is None:
        if not tf.executing_eagerly():
            return []
        raise UsageError(
            f'program "{graph.name}" has summaries, and the writer has no step; give it one, as in '
            f"`with writer.as_default(step=...)`\n  at {user_site()}"
        )
    if tf.executing_eagerly():
        step = int(step)  # a variable may count on
    return [dataclasses.replace(s, write=functools.partial(s.write, step=step)) for s in graph.summaries.values()]


def write_summaries(summaries: Sequence[Summary], values: Sequence[tf.Tensor]) -> None:
    """Writes summaries, if there is still a writer.

    Raises:
      UsageError: TensorBoard, which implements the format, is not installed.
    """
    for summary, value in zip(summaries, values, strict=True):
        try:
            summary.write(summary.name, value)
        except ImportError:
            raise UsageError(
                f'the summary "{summary.name}" needs TensorBoard, which is not installed: pip install '
                f"'meshtf[tensorboard]'\n  at {user_site()}"
            ) from None
