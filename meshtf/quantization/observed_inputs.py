"""Calibration: the ranges of the inputs of kernels, observed in a floating-point program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.control_flow.notes import note, noting
from meshtf.dimension import Shape
from meshtf.graph.graph import Graph, current_graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.ops.variables.get_variable import make_variable
from meshtf.ops.variables.variable import VariableSpec
from meshtf.quantization.kernels import is_kernel


@contextlib.contextmanager
def observed_inputs() -> Iterator[dict[str, Tensor]]:
    """Observes the range of each input that the layers inside multiply by a kernel.

    These layers are dense layers and the projections of attention. The products of experts and of recurrent layers are
    not observed.

    Yields:
      A mapping, filled at the end, from each kernel's name to the largest magnitude of its input, float32. This is a
      scalar, or [layers] for the kernels of a stack. Return the mapping from the program, keep the largest values over
      some batches, and pass them to `quantize_store` as `input_ranges`.

    Raises:
      GraphError: no graph is being built here. Or a layer is in a pipeline, or in a branch or a loop other than a scan.

    Examples:
      >>> with mtf.quantization.observed_inputs() as ranges:
      ...     y = mtf.layers.dense(2.0 * mtf.ones(mesh, "batch:4 hidden:8"), "d_ff:32", name="layer")
      >>> {name: value(x) for name, x in ranges.items()}
      {'layer/kernel': np.float32(2.0)}
    """
    graph, found = current_graph(), dict[str, Tensor]()
    graph.variable_storage.append(_ObservedInputs())
    try:
        with noting(graph) as notes:
            yield found
    finally:
        graph.variable_storage.pop()
    found.update(largest_by_kernel(graph, notes))


class _ObservedInputs:
    """Reads kernels as they are, and notes the largest magnitude of the inputs that they multiply."""

    def __init__(self) -> None:
        self._kernels: dict[Tensor, VariableSpec] = {}

    def stores(self, spec: VariableSpec) -> bool:
        return is_kernel(spec)

    def read(self, mesh: Mesh, spec: VariableSpec) -> Tensor:
        kernel = make_variable(mesh, spec)
        self._kernels[kernel] = spec
        return kernel

    def product(self, x: Tensor, kernel: Tensor, output_shape: Shape) -> Tensor | None:
        if kernel in self._kernels:
            note(self._kernels[kernel].full_name, largest_magnitude(x))
        return None


def largest_magnitude(x: Tensor) -> Tensor:
    """The largest magnitude of a tensor, float32, without a gradient."""
    return mtf.reduce_max(mtf.abs(mtf.cast(mtf.stop_gradient(x), tf.float32)))


def largest_by_kernel(graph: Graph, notes: Sequence[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """The largest note of each kernel, keyed by its name: one number for each of its layers."""
    found: dict[str, list[Tensor]] = {}
    for name, x in notes:
        dims = [d for d in x.shape if graph.variables[name].outputs[0].shape.has(d.name)]
        found.setdefault(name, []).append(mtf.reduce_max(x, output_shape=dims))
    return {name: functools.reduce(mtf.maximum, values) for name, values in found.items()}
