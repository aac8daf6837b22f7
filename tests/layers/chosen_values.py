"""A program on the interpreter, from values of its variables that a test chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.variables._initializers import initializer_of
from meshtf.ops.variables.variable import Variable
from meshtf.testing import interpret_graph


def results_by_layout(
    program: Callable[[mtf.Tensor], Sequence[mtf.Tensor]],
    x: tuple[mtf.Shape, np.ndarray],
    values: Mapping[str, np.ndarray],
    layouts: Sequence[str],
) -> Iterator[Sequence[np.ndarray]]:
    """The results for x on 2 x 2 cores, under each layout. The test names every variable in `values`."""
    graph = mtf.Graph("program", mtf.VariableDType(tf.float32))
    mesh, (shape, array) = mtf.Mesh(graph), x
    with graph:
        results = program(mtf.placeholder(mesh, shape, tf.as_dtype(array.dtype), name="x"))
    assert {*graph.variables} == {*values}
    for name, variable in graph.variables.items():
        assert isinstance(variable, Variable)
        start_as(variable, values[name])
    for layout in layouts:
        yield interpret_graph(graph, list(results), {"x": array}, "rows:2;cols:2", layout).results


def start_as(variable: Variable, value: np.ndarray) -> None:
    """Sets the initial value of a variable."""
    made = initializer_of(variable.full_name, value, variable.unpadded_shape, variable.shape, variable.slice_dtype)
    variable.spec = dataclasses.replace(variable.spec, initializer=made)
