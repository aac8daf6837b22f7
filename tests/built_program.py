"""A program that is built once, and interpreted under many layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import ShapeLike
from meshtf.layout import LayoutLike
from meshtf.testing import Interpretation, build, interpret_graph

Inputs: TypeAlias = Mapping[str, tuple[ShapeLike, np.ndarray]]


class BuiltProgram:
    """The graph of a function, which knows no layout."""

    def __init__(self, fn: Callable[..., Any], inputs: Inputs) -> None:
        self._arrays = {name: np.asarray(array) for name, (_, array) in inputs.items()}
        specs = {n: mtf.TensorSpec(shape, tf.as_dtype(self._arrays[n].dtype)) for n, (shape, _) in inputs.items()}
        self.graph, self._results = build(fn, specs)
        self._fetches = [x for x in tf.nest.flatten(self._results) if isinstance(x, mtf.Tensor)]

    def interpret(self, mesh_shape: str, layout: LayoutLike = "") -> Interpretation:
        """As `mtf.testing.interpret` does, from the initial values of the variables."""
        done = interpret_graph(self.graph, self._fetches, self._arrays, mesh_shape, layout)
        values = iter(done.results)
        results = tf.nest.map_structure(lambda x: next(values) if isinstance(x, mtf.Tensor) else x, self._results)
        return dataclasses.replace(done, results=results)
